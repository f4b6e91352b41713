"""Answers of the decoder's SQL as Arrow tables."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, parts


@dataclass(frozen=True)
class Answer:
    """`truncated`: there were more rows than asked for."""

    table: pa.Table
    truncated: bool

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each row."""
        return list(self.table.to_pylist())


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
        return Answer(reader.read_all(), truncated)


def text_literal(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"
