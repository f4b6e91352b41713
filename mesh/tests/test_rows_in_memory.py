"""Rows of small files, kept as long as the table has the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from permille.mesh.rows_in_memory import RowsInMemory
from pyarrow import fs

LOCAL = fs.LocalFileSystem()
COLUMNS = {"session_id": pa.string(), "calls": pa.int64(), "later": pa.int64()}
SCHEMA = pa.table({name: pa.array([], kind) for name, kind in COLUMNS.items()}).schema


def put(folder: Path, session_id: str, calls: int) -> None:
    # Files of earlier releases lack columns.
    pq.write_table(pa.table({"calls": [calls]}), folder / f"{session_id}.parquet")


def table(folder: Path) -> ds.Dataset:
    files = ds.ParquetFileFormat()
    fragments = [
        files.make_fragment(str(file), LOCAL, partition_expression=ds.field("session_id") == file.stem)
        for file in sorted(folder.iterdir())
    ]
    return ds.FileSystemDataset(fragments, SCHEMA, files, LOCAL)


def rows(dataset: ds.Dataset) -> list[tuple[str, int, None]]:
    return sorted(tuple(row.values()) for row in dataset.to_table().to_pylist())


def test_each_file_is_read_once_for_as_long_as_the_table_has_it(tmp_path: Path) -> None:
    kept = RowsInMemory()
    put(tmp_path, "s1", 1)
    put(tmp_path, "s2", 2)
    with_both = table(tmp_path)
    assert rows(kept.dataset(with_both)) == rows(with_both) == [("s1", 1, None), ("s2", 2, None)]
    put(tmp_path, "s3", 3)
    (tmp_path / "s2.parquet").write_bytes(b"")
    assert rows(kept.dataset(table(tmp_path))) == [("s1", 1, None), ("s2", 2, None), ("s3", 3, None)]
    (tmp_path / "s2.parquet").unlink()
    assert rows(kept.dataset(table(tmp_path))) == [("s1", 1, None), ("s3", 3, None)]
    put(tmp_path, "s2", 7)
    assert ("s2", 7, None) in rows(kept.dataset(table(tmp_path)))


def test_rows_are_put_together_only_when_there_are_others(tmp_path: Path) -> None:
    kept = RowsInMemory()

    def place() -> int:
        calls: Any = kept.dataset(table(tmp_path)).to_table(columns=["calls"])["calls"].chunk(0)
        return int(calls.buffers()[1].address)

    put(tmp_path, "s1", 1)
    put(tmp_path, "s2", 2)
    first = place()
    assert place() == first
    put(tmp_path, "s3", 3)
    second = place()
    assert second != first and place() == second


def test_who_reads_a_file_that_is_lost_is_told_and_the_others_are_there(tmp_path: Path) -> None:
    kept = RowsInMemory()
    put(tmp_path, "s1", 1)
    put(tmp_path, "s2", 2)
    found = table(tmp_path)
    (tmp_path / "s2.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        kept.dataset(found).to_table()
    assert kept.dataset(found).to_table(filter=ds.field("session_id") == "s1").num_rows == 1


def test_where_the_store_is_away_no_more_than_one_file_is_asked_for(tmp_path: Path) -> None:
    kept = RowsInMemory()
    for number in range(5):
        put(tmp_path, f"s{number}", number)

    class Away(fs.FSSpecHandler):
        asked = 0

        def __init__(self) -> None:
            super().__init__(None)

        def open_input_file(self, path: str) -> Any:
            Away.asked += 1
            raise OSError("away")

        def get_type_name(self) -> str:
            return "away"

    files, there = ds.ParquetFileFormat(), list(map(str, sorted(tmp_path.iterdir())))
    away = fs.PyFileSystem(Away())  # type: ignore[abstract]
    found = ds.FileSystemDataset([files.make_fragment(file, away) for file in there], SCHEMA, files, away)
    with pytest.raises(OSError, match="away"):
        kept.dataset(found).to_table()
    asked, _ = Away.asked, kept.dataset(found)
    assert Away.asked == asked + 1


def test_a_table_that_is_not_there_has_no_rows() -> None:
    assert RowsInMemory().dataset(ds.dataset(SCHEMA.empty_table())).count_rows() == 0
