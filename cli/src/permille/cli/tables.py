"""Answers of the decoder's SQL as Arrow tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, parts
from permille.mesh.errors import InvalidArgument


@dataclass(frozen=True)
class Answer:
    """`truncated`: there were more rows than asked for."""

    table: pa.Table
    truncated: bool

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each row. Raises `InvalidArgument` for times after the year 9999."""
        names = self.table.column_names
        columns = [_values(name, self.table[name]) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


async def query(client: MeshClient, sql: str, max_rows: int = 0) -> Answer:
    """At most `max_rows` rows (0: the decoder's default). Raises what the decoder raises."""
    decoder = await client.decoder()
    stream = io.BytesIO()
    truncated = False
    async for part in parts(decoder.Query(decoder_pb2.QueryRequest(sql=sql, max_rows=max_rows))):
        stream.write(part.arrow_ipc)
        truncated = truncated or part.truncated
    stream.seek(0)
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    return Answer(table.rename_columns(_told_apart(table.column_names)), truncated)


def _told_apart(names: Sequence[str]) -> list[str]:
    """Of columns with one name, as those of joined tables, the second is `name_1`, as within a query of DuckDB's."""
    found: list[str] = []
    for name in names:
        others = (name, *(f"{name}_{number}" for number in range(1, len(names) + 1)))
        found.append(next(one for one in others if one not in found and (one == name or one not in names)))
    return found


def _values(name: str, column: pa.ChunkedArray[Any]) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        # Python's times have microseconds, and end with the year 9999.
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            return list(column.cast(pa.string()).to_pylist())
        raise InvalidArgument(
            f"the column {name!r} ({column.type}) has times that cannot be shown",
            reason="TIME_OUT_OF_RANGE",
            help="write it as text: CAST(… AS VARCHAR); times in the tables are unix nanoseconds",
            metadata={"column": name},
        ) from None


def text_literal(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"
