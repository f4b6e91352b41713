"""Files of the tables, as everybody reads them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permille.decoder.domain.table_part import TablePart, WrittenPart, stored_schema
from permille.mesh.table_schemas import SCHEMAS
from permille.ptcore import RowsFile

MAX_INT, MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.one_of(st.integers(-2, 300), st.integers(-MAX_INT - 1, MAX_INT)),
    pa.int64(): st.one_of(st.integers(-2, 300), st.integers(-MAX_LONG - 1, MAX_LONG)),
    pa.string(): st.one_of(st.sampled_from(["", "é", "main"]), st.text(st.characters(codec="utf-8"), max_size=9)),
}


def written(
    table: str, groups: list[pa.RecordBatch], footer: dict[str, str] | None = None
) -> tuple[WrittenPart, bytes]:
    part = TablePart(table, Path("/nowhere"), footer)
    for group in groups:
        part.write(dict(zip(group.schema.names, group.columns, strict=True)))
    done = part.finish()
    return done, done.file.read()


def a_batch(table: str) -> st.SearchStrategy[pa.RecordBatch]:
    schema = stored_schema(table)
    row = st.fixed_dictionaries({column.name: VALUES[column.type] for column in schema})
    return st.lists(row, max_size=60).map(lambda rows: pa.RecordBatch.from_pylist(rows, schema=schema))


@pytest.mark.parametrize("table", SCHEMAS)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_every_reader_reads_what_was_written(table: str, data: st.DataObject) -> None:
    groups = data.draw(st.lists(a_batch(table), max_size=3))
    expected: Any = pa.Table.from_batches(groups, stored_schema(table))
    part, file = written(table, groups)
    assert (part.rows, part.size_bytes) == (expected.num_rows, len(file))
    found: Any = pq.read_table(io.BytesIO(file))
    assert found.schema.equals(expected.schema)
    assert found.equals(expected)
    if expected.num_rows:
        for name, (least, greatest) in part.ranges.items():
            assert (least, greatest) == (min(expected[name].to_pylist()), max(expected[name].to_pylist()))


@pytest.mark.parametrize(("table", "rows"), [("edges", 70_000), ("calls", 70_000), ("functions", 700)])
def test_duckdb_reads_it_too(table: str, rows: int, tmp_path: Path) -> None:
    # As many different numbers as no dictionary is made for, and slices of arrays, which begin elsewhere.
    values: dict[pa.DataType, Any] = {
        pa.bool_(): [number % 3 == 0 for number in range(-5, rows)],
        pa.int32(): [number * 31 for number in range(-5, rows)],
        pa.int64(): [number * 1_000_003**2 for number in range(-5, rows)],
        pa.string(): [f"f{number % 1000}" for number in range(-5, rows)],
    }
    schema = stored_schema(table)
    batch = pa.record_batch([pa.array(values[column.type], column.type) for column in schema], schema=schema).slice(5)
    path = tmp_path / "rows.parquet"
    path.write_bytes(written(table, [batch])[1])
    with duckdb.connect() as connection:
        found: Any = connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
    assert found.cast(schema).equals(pa.Table.from_batches([batch]))


def test_text_may_come_as_a_dictionary_and_a_footer_stands_beside_the_rows() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"segment": 0, "from_address": 1, "to_address": -1, "kind": kind, "count": 2} for kind in ("a", "b", "a")],
        schema=stored_schema("edges"),
    )
    # Not all of a dictionary need be used, nor each text stand in it once.
    kinds = pa.DictionaryArray.from_arrays(pa.array([3, 1, 0], pa.uint8()), pa.array(["a", "b", "c", "a"]))
    encoded = pa.record_batch(
        [kinds if name == "kind" else batch[name] for name in batch.schema.names], batch.schema.names
    )
    _, file = written("edges", [encoded], {"permille.files": "{}"})
    assert pq.read_table(io.BytesIO(file)).equals(pa.Table.from_batches([batch]))
    assert (pq.read_metadata(io.BytesIO(file)).metadata or {})[b"permille.files"] == b"{}"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="float"):
        RowsFile([("a", "float", "plain")], 1)
    with pytest.raises(ValueError, match="deltas of int64"):
        RowsFile([("a", "int32", "deltas")], 1)
    file = RowsFile([("a", "int32", "plain"), ("b", "string", "plain")], 1)
    number, text = memoryview(b"\0\0\0\0").cast("i"), memoryview(b"\0\0\0\0\1\0\0\0").cast("i")
    with pytest.raises(ValueError, match="2 columns, not 1"):
        file.group(1, [number])
    with pytest.raises(ValueError, match="1 numbers in 2 rows"):
        file.group(2, [number, (text, b"x", None)])
    with pytest.raises(ValueError, match="1 texts in 2 rows"):
        RowsFile([("b", "string", "plain")], 1).group(2, [(text, b"x", None)])
    with pytest.raises(ValueError, match="UTF-8"):
        file.group(1, [number, (text, b"\xff", None)])
    with pytest.raises(ValueError, match="there are 1 texts"):
        file.group(1, [number, (text, b"x", memoryview(b"\1\0\0\0").cast("i"))])
    with pytest.raises(ValueError, match="1 nulls in a column of int32"):
        TablePart("edges", Path("/nowhere")).write(
            {column.name: pa.array([None], column.type) for column in stored_schema("edges")}
        )
    with pytest.raises(TypeError, match="instead of int64"):
        TablePart("edges", Path("/nowhere")).write(
            {column.name: pa.array([1], pa.int32()) for column in stored_schema("edges")}
        )
