"""Answers of the decoder's SQL, row by row."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, parts
from permille.mesh.errors import InvalidArgument

# Of an answer in memory: a larger one is a file in the folder for temporary ones.
_IN_MEMORY_BYTES = 64 << 20
# Made of Arrow's values at once, each of which takes some 50 bytes.
_BLOCK_ROWS = 1 << 12


@dataclass(frozen=True)
class Answer:
    """`stream`: Arrow IPC; `truncated`: there were more rows than asked for."""

    stream: tempfile.SpooledTemporaryFile[bytes]
    truncated: bool

    @cached_property
    def columns(self) -> list[str]:
        """Their names, no two alike."""
        return _told_apart(self._schema.names)

    def blocks(self) -> Iterator[list[list[Any]]]:
        """Some rows at a time, as columns. Raises `InvalidArgument` for times after the year 9999, before any row."""
        return self._blocks(self._as_text)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each row. Raises as `blocks` does."""
        names = self.columns
        return [dict(zip(names, row, strict=True)) for block in self.blocks() for row in zip(*block, strict=True)]

    def _blocks(self, as_text: frozenset[int]) -> Iterator[list[list[Any]]]:
        for batch in self._batches():
            columns = [
                column.cast(pa.string()) if number in as_text else column for number, column in enumerate(batch.columns)
            ]
            yield [list(column.to_pylist()) for column in columns]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self.stream.seek(0)
        with pa.ipc.open_stream(self.stream) as reader:
            for batch in reader:
                for begin in range(0, batch.num_rows, _BLOCK_ROWS):
                    yield batch.slice(begin, _BLOCK_ROWS)

    @cached_property
    def _schema(self) -> pa.Schema:
        self.stream.seek(0)
        with pa.ipc.open_stream(self.stream) as reader:
            return reader.schema

    @cached_property
    def _as_text(self) -> frozenset[int]:
        """Columns of times that Python's do not have as they are."""
        doubtful = [number for number, field in enumerate(self._schema) if not _is_simple(field.type)]
        return frozenset(
            number
            for batch in (self._batches() if doubtful else ())
            for number in doubtful
            if _needs_text(self.columns[number], batch.column(number))
        )


async def query(client: MeshClient, sql: str, max_rows: int = 0) -> Answer:
    """At most `max_rows` rows (0: the decoder's default). Raises what the decoder raises.

    It is taken as it comes, and not as it is read: the decoder's time for a query is not the reader's.
    """
    decoder = await client.decoder()
    stream: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - as long as the answer
    truncated = False
    async for part in parts(decoder.Query(decoder_pb2.QueryRequest(sql=sql, max_rows=max_rows))):
        stream.write(part.arrow_ipc)
        truncated = truncated or part.truncated
    return Answer(stream, truncated)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Of columns with one name, as those of joined tables, the second is `name_1`, as within a query of DuckDB's."""
    found: list[str] = []
    for name in names:
        others = (name, *(f"{name}_{number}" for number in range(1, len(names) + 1)))
        found.append(next(one for one in others if one not in found and (one == name or one not in names)))
    return found


def _is_simple(kind: pa.DataType) -> bool:
    """Whether Python has every value of the type."""
    simple = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_decimal,
        pa.types.is_null,
    )
    return any(is_one(kind) for is_one in simple)


def _needs_text(name: str, column: pa.Array[Any]) -> bool:
    try:
        column.to_pylist()
    except (OverflowError, ValueError):
        # Python's times have microseconds, and end with the year 9999.
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            return True
        raise InvalidArgument(
            f"the column {name!r} ({column.type}) has times that cannot be shown",
            reason="TIME_OUT_OF_RANGE",
            help="write it as text: CAST(… AS VARCHAR); times in the tables are unix nanoseconds",
            metadata={"column": name},
        ) from None
    return False


def text_literal(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"
