"""Having stored sessions decoded, and seeing how far that is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from permille.api.decoder.v1 import decoder_pb2, decoder_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.coverage.service.patience import Patience
from permille.mesh.channels import Channels
from permille.mesh.operations import operation_error

_SHORT_S = 20.0
_WAIT_MS = 20_000


class Decodings:
    """Decode operations of the decoder service. Every call is repeated while no decoder is there."""

    def __init__(self, channels: Channels, *, patience_s: float) -> None:
        self._channels = channels
        self._patience_s = patience_s

    async def decode(
        self, session: str, request_id: str, changed: Callable[[operation_pb2.Progress], None]
    ) -> decoder_pb2.DecodeResult:
        """Decodes a session, once whatever happens, by its request_id. Raises the error that the decode ended with."""
        patience = Patience(self._patience_s)
        request = decoder_pb2.DecodeRequest(request_id=request_id, session=session)

        async def start() -> operation_pb2.Operation:
            return (await (await self._stub()).Decode(request, timeout=_SHORT_S)).operation

        operation = await patience.until_answered(start)
        while not operation.done:
            changed(operation.progress)
            operation = await patience.until_answered(self._waiting(operation))
        error = operation_error(operation)
        if error is not None:
            error.metadata.setdefault("session", session)
            raise error
        result = decoder_pb2.DecodeResult()
        operation.response.Unpack(result)
        return result

    def _waiting(self, operation: operation_pb2.Operation) -> Callable[[], Awaitable[operation_pb2.Operation]]:
        request = operation_pb2.WaitOperationRequest(
            name=operation.name, timeout_ms=_WAIT_MS, newer_than=operation.update_time
        )

        async def wait() -> operation_pb2.Operation:
            return (await (await self._stub()).WaitOperation(request, timeout=_WAIT_MS / 1000 + _SHORT_S)).operation

        return wait

    async def _stub(self) -> decoder_pb2_grpc.DecoderServiceAsyncStub:
        return decoder_pb2_grpc.DecoderServiceStub(await self._channels.to("decoder"))
