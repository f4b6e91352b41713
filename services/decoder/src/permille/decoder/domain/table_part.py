"""One Parquet file of a table while it is written, without the partition columns."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from permille.mesh.table_schemas import PARTITIONS, SCHEMAS, STATISTICS

pc: Any = pyarrow.compute

# Files up to so many bytes are not worth a file.
IN_MEMORY = 8 << 20
# To begin with zstd takes longer for each column than to write so many rows.
_FEW_ROWS = 1 << 9
# Lower ones make files a fourth larger and save next to nothing.
COMPRESSION_LEVEL = 1
# What grows from row to row is a third as large as differences, and twice as fast to write.
_DIFFERENCES = {"calls": ("call", "parent", "start_ns", "end_ns")}
# A dictionary makes these smaller; others, but for texts, larger than zstd alone, in half as long again.
_REPEATED = {"calls": ("line", "self_instructions", "total_instructions")}


def stored_schema(table: str) -> pa.Schema:
    """The columns that are in the files; the others are in their path."""
    return pa.schema([column for column in SCHEMAS[table] if column.name not in PARTITIONS])


def scratch_file(folder: Path) -> BinaryIO:
    """A file that vanishes with the process; a small one is never in `folder`."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder)))


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
        self.rows = 0
        self._file = scratch_file(folder)
        self._schema = stored_schema(table)
        self._writer: pq.ParquetWriter | None = None
        self._ranges: dict[str, tuple[int, int]] = {}

    def write(self, columns: dict[str, pa.Array[Any]]) -> None:
        """Rows of all columns of `stored_schema`; text may come as a dictionary."""
        batch = pa.record_batch([columns[column.name] for column in self._schema], names=self._schema.names)
        if not batch.num_rows:
            return
        if self._writer is None:
            self._writer = self._open(batch.schema, batch.num_rows)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self._widen(batch)

    def finish(self) -> WrittenPart:
        """The file, to which nothing more can be written."""
        if self._writer is None:
            self._writer = self._open(self._schema, 0)
        if self._footer:
            self._writer.add_key_value_metadata(self._footer)
        self._writer.close()
        size = self._file.tell()
        self._file.seek(0)
        return WrittenPart(self.table, self.rows, self._file, size, self._ranges)

    def _open(self, schema: pa.Schema, rows: int) -> pq.ParquetWriter:
        few = rows <= _FEW_ROWS
        repeated = _REPEATED.get(self.table, ())
        # Its stubs know only yes and no.
        with_dictionary: Any = [
            column.name for column in self._schema if pa.types.is_string(column.type) or column.name in repeated
        ]
        return pq.ParquetWriter(
            self._file,
            schema,
            compression="snappy" if few else "zstd",
            compression_level=None if few else COMPRESSION_LEVEL,
            write_statistics=False,
            # Readers take the types from the table; the writer's dictionaries are its own matter.
            store_schema=False,
            use_dictionary=with_dictionary,
            column_encoding=dict.fromkeys(_DIFFERENCES.get(self.table, ()), "DELTA_BINARY_PACKED") or None,
        )

    def _widen(self, batch: pa.RecordBatch) -> None:
        for name in filter(None, STATISTICS[self.table].split(",")):
            found = pc.min_max(batch[name]).as_py()
            least, most = self._ranges.get(name, (found["min"], found["max"]))
            self._ranges[name] = (min(least, found["min"]), max(most, found["max"]))
