"""A decode operation from its request to its result."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import structlog
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.manifest import parse_session_name
from permille.decoder.domain.priority_gate import PriorityGate
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.mesh.backoff import Backoff
from permille.mesh.errors import Cancelled, PermilleError, Unavailable
from permille.mesh.operation_runner import Job

_log = structlog.get_logger(__name__)
# Progress goes into etcd: not more often than anybody looks.
_PROGRESS_S = 0.25


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
                raise Cancelled("the decode was cancelled", reason="CANCELLED", help="start it again with `permille`")
            return work.result()
        except PermilleError as error:
            if error.reason != "OPERATION_TAKEN":
                await _ended(work)
                await self._forget(job)
            raise
        finally:
            await _ended(work)
            await _ended(cancelled)

    async def _decoded(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        await job.progress("WAITING")
        async with self._gate.turn(job.request.priority):
            return await self._with_patience(job)

    async def _with_patience(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        await job.progress("DECODING")
        backoff, attempt, away = Backoff(), _Attempt(job), 0.0
        try:
            while True:
                try:
                    return await self._attempt(job, attempt)
                except Unavailable:
                    # A part may take longer than that, with the store away only at its end.
                    if away <= attempt.moved:
                        away = time.monotonic()
                    if time.monotonic() > away + self._patience_s:
                        raise
                await backoff.pause()
        finally:
            await attempt.end()

    async def _attempt(self, job: Job[decoder_pb2.DecodeRequest], attempt: _Attempt) -> decoder_pb2.DecodeResult:
        _, session_id = parse_session_name(job.request.session)
        decoded = await self._decoder.decode(session_id, job.name, attempt.progress, priority=job.request.priority)
        return decoder_pb2.DecodeResult(
            session=decoded.session,
            instructions=decoded.instructions,
            calls=decoded.calls,
            functions=decoded.functions,
            raw_bytes=decoded.raw_bytes,
            lost_bytes=decoded.lost_bytes,
            decode_ms=round((time.monotonic() - attempt.begun) * 1000),
        )

    async def _forget(self, job: Job[decoder_pb2.DecodeRequest]) -> None:
        _, session_id = parse_session_name(job.request.session)
        try:
            await self._decoder.forget(session_id, job.name)
        except PermilleError as error:
            _log.warning("what a decode left in the store stays there", operation=job.name, error=error.message)


class _Attempt:
    """How far the decode is, over all attempts: never less than it was."""

    def __init__(self, job: Job[decoder_pb2.DecodeRequest]) -> None:
        self._job = job
        self.begun = self.moved = time.monotonic()
        self._shown = 0.0
        self._most = self._total = 0
        self._later: asyncio.Task[None] | None = None

    async def progress(self, done: int, total: int) -> None:
        self._total = total
        if done > self._most:
            self._most, self.moved = done, time.monotonic()
        wait_s = 0 if self._most == total else self._shown + _PROGRESS_S - time.monotonic()
        if wait_s <= 0:
            await self._tell()
        elif self._later is None or self._later.done():
            # The next part may take long.
            self._later = asyncio.create_task(self._tell_after(wait_s))

    async def end(self) -> None:
        if self._later is not None:
            await _ended(self._later)

    async def _tell_after(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        # What is wrong with etcd the next part's progress finds out.
        with suppress(PermilleError):
            await self._tell()

    async def _tell(self) -> None:
        self._shown = time.monotonic()
        await self._job.progress("DECODING", self._most, self._total, "bytes")


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
