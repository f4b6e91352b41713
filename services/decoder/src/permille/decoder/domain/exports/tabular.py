"""The rows of one table as CSV, Parquet or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from permille.decoder.domain.drained_sink import DrainedSink
from permille.decoder.domain.session_rows import SessionRows


def csv(rows: SessionRows, table: str) -> Iterator[bytes]:
    """With a header."""
    return _written(rows, table, pa.csv.CSVWriter)


def parquet(rows: SessionRows, table: str) -> Iterator[bytes]:
    """Compressed with zstd."""
    return _written(rows, table, lambda sink, schema: pa.parquet.ParquetWriter(sink, schema, compression="zstd"))


def json_rows(rows: SessionRows, table: str) -> Iterator[bytes]:
    """An array of objects, one a line."""
    yield b"["
    separator = "\n"
    for batch in rows.table(table):
        for row in batch.to_pylist():
            yield f"{separator}{json.dumps(row, default=str)}".encode()
            separator = ",\n"
    yield b"\n]\n"


def _written(rows: SessionRows, table: str, writer_of: Callable[[Any, pa.Schema], Any]) -> Iterator[bytes]:
    reader = rows.table(table)
    sink = DrainedSink()
    with writer_of(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()
