"""Questions to the decoder's tables."""

from __future__ import annotations

import io
from typing import Any

from permille.api.decoder.v1 import decoder_pb2, decoder_pb2_grpc
from permille.coverage.service.patience import Patience
from permille.mesh.channels import Channels
from permille.mesh.errors import ResourceExhausted

# Of one answer: the functions or the calls between functions of one session.
_MOST_ROWS = 2_000_000
_ANSWER_S = 120.0


class TableReader:
    """Read-only SQL, asked again while no decoder is there."""

    def __init__(self, channels: Channels, *, patience_s: float) -> None:
        self._channels = channels
        self._patience_s = patience_s

    async def rows(self, sql: str, *, patience_s: float | None = None) -> list[dict[str, Any]]:
        """The answer, one dictionary a row. `patience_s`: another than the service's own.

        Raises what the decoder raises, `ResourceExhausted` for more than two million rows.
        """
        request = decoder_pb2.QueryRequest(sql=sql, max_rows=_MOST_ROWS)

        async def ask() -> list[dict[str, Any]]:
            stub = decoder_pb2_grpc.DecoderServiceStub(await self._channels.to("decoder"))
            stream, truncated = io.BytesIO(), False
            async for part in stub.Query(request, timeout=_ANSWER_S):
                stream.write(part.arrow_ipc)
                truncated = truncated or part.truncated
            if truncated:
                raise ResourceExhausted(
                    f"an answer has more than {_MOST_ROWS:,} rows",
                    reason="ANSWER_TOO_LARGE",
                    help="look at fewer sessions, or at shorter ones",
                )
            return _rows(stream)

        return await Patience(self._patience_s if patience_s is None else patience_s).until_answered(ask)


def text_literal(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def _rows(stream: io.BytesIO) -> list[dict[str, Any]]:
    # A service that only plans does without Arrow's memory.
    import pyarrow as pa  # noqa: PLC0415

    stream.seek(0)
    with pa.ipc.open_stream(stream) as reader:
        return list(reader.read_all().to_pylist())
