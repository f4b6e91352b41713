"""One Parquet file of a table while it is written, without the partition columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.ptcore_columns import numbers_of
from permille.decoder.domain.scratch_file import ScratchFile
from permille.mesh.table_schemas import PARTITIONS, SCHEMAS, STATISTICS
from permille.ptcore import RowsFile

pc: Any = pyarrow.compute

# Lower ones make files a fourth larger and save next to nothing.
COMPRESSION_LEVEL = 1
# Others are plain: a dictionary makes them larger than zstd alone.
_ENCODINGS = {
    # What grows from row to row is a third as large as differences.
    "calls": dict.fromkeys(("call", "parent", "start_ns", "end_ns"), "deltas")
    | dict.fromkeys(("line", "self_instructions", "total_instructions"), "few")
}


def stored_schema(table: str) -> pa.Schema:
    """The columns that are in the files; the others are in their path."""
    return pa.schema([column for column in SCHEMAS[table] if column.name not in PARTITIONS])


@dataclass(frozen=True)
class WrittenPart:
    """A whole file, at its beginning. `ranges`: least and greatest value of what Delta keeps statistics of."""

    table: str
    rows: int
    file: BinaryIO
    size_bytes: int
    ranges: Mapping[str, tuple[int, int]]


class TablePart:
    """A temporary file in `folder` that vanishes with the process. Each batch of rows becomes a row group.

    `footer`: kept beside the rows.
    """

    def __init__(self, table: str, folder: Path, footer: dict[str, str] | None = None) -> None:
        self.table = table
        self._footer = footer or {}
        self._file = ScratchFile(folder)
        self._schema = stored_schema(table)
        encodings = _ENCODINGS.get(table, {})
        columns = [(column.name, str(column.type), encodings.get(column.name, "plain")) for column in self._schema]
        self._encoder = RowsFile(columns, COMPRESSION_LEVEL)
        self._ranges: dict[str, tuple[int, int]] = {}

    @property
    def rows(self) -> int:
        """Written."""
        return self._encoder.rows

    def write(self, columns: Mapping[str, pa.Array[Any]]) -> None:
        """Rows of all columns of `stored_schema`; text may come as a dictionary."""
        rows = len(columns[self._schema.names[0]])
        if rows:
            told = [_encodable(columns[column.name], column.type) for column in self._schema]
            self._file.write(self._encoder.group(rows, told))
            self._widen(columns)

    def finish(self) -> WrittenPart:
        """The file, to which nothing more can be written."""
        self._file.write(self._encoder.finish(self._footer))
        return WrittenPart(self.table, self.rows, self._file.whole(), self._file.size_bytes, self._ranges)

    def _widen(self, columns: Mapping[str, pa.Array[Any]]) -> None:
        for name in filter(None, STATISTICS[self.table].split(",")):
            found = pc.min_max(columns[name]).as_py()
            least, most = self._ranges.get(name, (found["min"], found["max"]))
            self._ranges[name] = (min(least, found["min"]), max(most, found["max"]))


def _encodable(column: Any, kind: pa.DataType) -> Any:
    """As `RowsFile` takes it."""
    if column.null_count:
        raise ValueError(f"{column.null_count} nulls in a column of {kind}")
    if pa.types.is_dictionary(column.type):
        return *_texts(column.dictionary), numbers_of(column.indices.cast(pa.int32()), "i")
    if column.type != kind:
        raise TypeError(f"a column of {column.type} instead of {kind}")
    if kind == pa.string():
        return *_texts(column), None
    if kind == pa.bool_():
        return numbers_of(column.cast(pa.uint8()), "B")
    return numbers_of(column, "q" if kind == pa.int64() else "i")


def _texts(column: Any) -> tuple[memoryview, memoryview]:
    _, offsets, data = column.buffers()
    begins = memoryview(offsets or bytes(4)).cast("B").cast("i")
    return begins[column.offset : column.offset + len(column) + 1], memoryview(data or b"").cast("B")
