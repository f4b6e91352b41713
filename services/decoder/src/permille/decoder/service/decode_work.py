"""A decode operation from its request to its result."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.manifest import parse_session_name
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.mesh.backoff import Backoff
from permille.mesh.errors import Cancelled, Unavailable
from permille.mesh.operation_runner import Job
from permille.mesh.operations import operation_id

# Progress goes into etcd: not more often than anybody looks.
_PROGRESS_S = 0.25


class DecodeWork:
    """What `OperationRunner` runs. A decode that is done again replaces its rows, so a crash doubles nothing."""

    def __init__(self, decoder: SessionDecoder, scratch: Path, *, patience_s: float) -> None:
        self._decoder = decoder
        self._scratch = scratch
        self._patience_s = patience_s

    async def __call__(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        """Raises what the domain raises, `Unavailable` after the store has been away for long, and `Cancelled`."""
        work = asyncio.create_task(self._decoded(job))
        cancelled = asyncio.create_task(job.cancel_requested.wait())
        try:
            await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Cancelled("the decode was cancelled", reason="CANCELLED", help="start it again with `permille`")
            return work.result()
        finally:
            for task in (work, cancelled):
                task.cancel()
            await asyncio.gather(work, cancelled, return_exceptions=True)

    async def _decoded(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        backoff, give_up = Backoff(), time.monotonic() + self._patience_s
        while True:
            try:
                return await self._attempt(job)
            except Unavailable:
                if time.monotonic() > give_up:
                    raise
            await backoff.pause()

    async def _attempt(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        begun = shown = time.monotonic()
        _, session_id = parse_session_name(job.request.session)
        await job.progress("DECODING")

        async def progress(done: int, total: int) -> None:
            nonlocal shown
            if done in (0, total) or time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                await job.progress("DECODING", done, total, "bytes")

        decoded = await self._decoder.decode(session_id, self._scratch / operation_id(job.name), job.name, progress)
        return decoder_pb2.DecodeResult(
            session=decoded.session,
            instructions=decoded.instructions,
            calls=decoded.calls,
            functions=decoded.functions,
            raw_bytes=decoded.raw_bytes,
            lost_bytes=decoded.lost_bytes,
            decode_ms=round((time.monotonic() - begun) * 1000),
        )
