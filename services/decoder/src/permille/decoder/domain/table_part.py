"""One Parquet file of a table while it is written, without the partition columns."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from permille.mesh.table_schemas import PARTITIONS, SCHEMAS, STATISTICS

pc: Any = pyarrow.compute

# Files up to so many bytes are not worth a file.
IN_MEMORY = 8 << 20
# To begin with zstd costs as much for each column as to write so many rows.
FEW_ROWS = 16
# Lower ones make files a fourth larger and save next to nothing.
COMPRESSION_LEVEL = 1
# What grows from row to row is a third as large as differences, and twice as fast to write.
_DIFFERENCES = {"calls": ("call", "parent", "start_ns", "end_ns")}
# Runs of equal or small numbers, which zstd makes as small as a dictionary does, in half the time.
_PLAIN = {"calls": ("segment", "pid", "tid", "depth", "core", "function"), "edges": ("segment",)}


def stored_schema(table: str) -> pa.Schema:
    """The columns that are in the files; the others are in their path."""
    return pa.schema([column for column in SCHEMAS[table] if column.name not in PARTITIONS])


def scratch_file(folder: Path) -> BinaryIO:
    """A file that vanishes with the process; a small one is never in `folder`."""
    return cast(BinaryIO, tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder)))


class TablePart:
    """A temporary file in `folder` that vanishes with the process. Each batch of rows becomes a row group.

    `packed`: for no more than `FEW_ROWS` it takes longer, and the file is larger. `footer`: kept beside the rows.
    """

    def __init__(self, table: str, folder: Path, *, packed: bool = True, footer: dict[str, str] | None = None) -> None:
        self.table = table
        self._packed = packed
        self._footer = footer or {}
        self._folder = folder
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
            self._writer = self._open(batch.schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self._widen(batch)

    def finish(self) -> tuple[BinaryIO, int, dict[str, tuple[int, int]]]:
        """The file, its size, and least and greatest value of the columns that Delta keeps statistics of."""
        if self._writer is None:
            self._writer = self._open(self._schema)
        if self._footer:
            self._writer.add_key_value_metadata(self._footer)
        self._writer.close()
        size = self._file.tell()
        self._file.seek(0)
        return self._file, size, self._ranges

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        differences = _DIFFERENCES.get(self.table, ())
        no_dictionary = (*differences, *_PLAIN.get(self.table, ()))
        # Its stubs know only yes and no.
        with_dictionary: Any = [name for name in schema.names if name not in no_dictionary]
        return pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd" if self._packed else "none",
            compression_level=COMPRESSION_LEVEL if self._packed else None,
            write_statistics=False,
            # Readers take the types from the table; the writer's dictionaries are its own matter.
            store_schema=False,
            use_dictionary=with_dictionary if self._packed else False,
            column_encoding=dict.fromkeys(differences, "DELTA_BINARY_PACKED") or None,
        )

    def _widen(self, batch: pa.RecordBatch) -> None:
        for name in filter(None, STATISTICS[self.table].split(",")):
            found = pc.min_max(batch[name]).as_py()
            least, most = self._ranges.get(name, (found["min"], found["max"]))
            self._ranges[name] = (min(least, found["min"]), max(most, found["max"]))
