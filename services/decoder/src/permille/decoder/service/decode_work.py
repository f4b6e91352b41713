"""A decode operation from its request to its result."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import structlog
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.manifest import parse_session_name
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.decoder.service.decode_progress import DecodeProgress
from permille.mesh.backoff import Backoff
from permille.mesh.errors import Cancelled, PermilleError, Unavailable
from permille.mesh.operation_runner import Job
from permille.mesh.priority_gate import PriorityGate

_log = structlog.get_logger(__name__)


class DecodeWork:
    """What `OperationRunner` runs: so many sessions at once, the most urgent first.

    A decode that begins again goes on where it was and replaces its rows, so a crash doubles nothing.
    """

    def __init__(self, decoder: SessionDecoder, *, most_at_once: int, patience_s: float) -> None:
        self._decoder = decoder
        self._gate = PriorityGate(lambda: most_at_once)
        self._patience_s = patience_s

    async def __call__(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        """Raises what the domain raises, `Unavailable` after the store has been away for long, and `Cancelled`."""
        work = asyncio.create_task(self._decoded(job))
        cancelled = asyncio.create_task(job.cancel_requested.wait())
        try:
            await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                _, session_id = parse_session_name(job.request.session)
                way_out = f"`permille report {session_id} --again` decodes it"
                raise Cancelled("the decode was cancelled", reason="CANCELLED", help=way_out)
            return work.result()
        except Exception as error:
            if not isinstance(error, PermilleError) or error.reason != "OPERATION_TAKEN":
                await _ended(work)
                await self._forget(job)
            raise
        finally:
            await _ended(work)
            await _ended(cancelled)

    async def _decoded(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        await _stage(job, "WAITING")
        async with self._gate.turn(job.request.priority):
            return await self._with_patience(job)

    async def _with_patience(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        await _stage(job, "DECODING")

        async def tell(done: int, total: int, waiting: str) -> None:
            await job.progress("DECODING", done, total, "bytes", waiting=waiting)

        told = job.operation.progress
        progress = DecodeProgress(tell, begun_at=told.completed, total=told.total)
        backoff, away, since = Backoff(), 0.0, datetime.now(UTC)
        try:
            while True:
                try:
                    return await self._attempt(job, progress)
                except PermilleError as error:
                    # What may be there again soon.
                    if not isinstance(error, Unavailable) and error.reason != "MACHINE_EXHAUSTED":
                        raise
                    # A part may take longer than that, with the store away only at its end.
                    if away <= progress.moved:
                        away, since = time.monotonic(), datetime.now(UTC)
                        _log.warning("a decode waits", operation=job.name, reason=error.reason, error=error.message)
                    if time.monotonic() > away + self._patience_s:
                        raise
                    await progress.waits(f"{error.message} (since {since:%Y-%m-%d %H:%M:%S} UTC): {error.help}")
                await backoff.pause()
        finally:
            await progress.end()

    async def _attempt(self, job: Job[decoder_pb2.DecodeRequest], progress: DecodeProgress) -> decoder_pb2.DecodeResult:
        _, session_id = parse_session_name(job.request.session)
        decoded = await self._decoder.decode(
            session_id,
            job.name,
            progress.moved_to,
            name=job.request.session,
            priority=job.request.priority,
            begun=progress.goes_on,
        )
        return decoder_pb2.DecodeResult(
            session=decoded.session,
            instructions=decoded.instructions,
            calls=decoded.calls,
            functions=decoded.functions,
            raw_bytes=decoded.raw_bytes,
            lost_bytes=decoded.lost_bytes,
            decode_ms=round((time.monotonic() - progress.begun) * 1000),
        )

    async def _forget(self, job: Job[decoder_pb2.DecodeRequest]) -> None:
        _, session_id = parse_session_name(job.request.session)
        try:
            # Files of a decode are another owner's as well, who may have put them into the tables.
            await job.require_owned()
            await self._decoder.forget(session_id, job.name)
        except PermilleError as error:
            _log.warning("what a decode left in the store stays there", operation=job.name, error=error.message)


async def _stage(job: Job[decoder_pb2.DecodeRequest], stage: str) -> None:
    """Another stage; as far as the work was, also that of a process that died."""
    known = job.operation.progress
    await job.progress(stage, known.completed, known.total, known.unit)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
