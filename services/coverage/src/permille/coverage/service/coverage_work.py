"""The work behind a coverage operation: record, store, decode; begun again by another process it repeats nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.api.decoder.v1 import decoder_pb2
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.rates import Observation
from permille.coverage.service.adaptive_rounds import AdaptiveRounds, over, present_round, skip
from permille.coverage.service.decoding import Decodings
from permille.coverage.service.progress import Stage, decoding_stage, recording_stage
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.recording import Recordings
from permille.mesh.errors import Cancelled, Code, PermilleError
from permille.mesh.operation_runner import Job
from permille.mesh.operations import operation_id

Session = controller_pb2.Session
CoverageJob = Job[coverage_pb2.StartCoverageRequest]
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
# How often progress is written while it moves.
_PROGRESS_S = 0.25
# Why a later round's process is passed over: it ended, or somebody else records it.
_PASSED_OVER = (Code.NOT_FOUND, Code.FAILED_PRECONDITION)


class CoverageWork:
    """Called by the operation runner for each operation, perhaps again after a crash."""

    def __init__(self, recordings: Recordings, decodings: Decodings, rates: RateStore, rounds: AdaptiveRounds) -> None:
        self._recordings = recordings
        self._decodings = decodings
        self._rates = rates
        self._rounds = rounds

    async def __call__(self, job: CoverageJob) -> coverage_pb2.CoverageResult:
        """Runs one operation to its end. Raises the first error met, after everything else has come to its own end."""
        state = coverage_pb2.CoverageState.FromString(await job.saved())
        sessions: dict[int, Session] = {}
        decoded: dict[int, decoder_pb2.DecodeResult] = {}
        adaptive = bool(state.plan.later) or job.request.coverage.rounds.limit > 1
        while True:
            if not over(state) and not await self._begun(job, state, first=not state.rounds):
                continue
            # After a crash also those of earlier rounds, which are stored and decoded: that is soon said.
            stored = await self._record(job, state, set(state.sessions) - set(sessions))
            sessions |= stored
            decoded |= await self._decode(job, stored)
            if not adaptive or over(state):
                break
            await self._rounds.judge(job.request.coverage.rounds, state, sessions)
            await _save(job, state)
            if over(state):
                break
        await self._learn(state, sessions, decoded)
        return coverage_pb2.CoverageResult(
            plan=state.plan, sessions=[session.name for _, session in sorted(sessions.items())], rounds=state.rounds
        )

    async def _begun(self, job: CoverageJob, state: coverage_pb2.CoverageState, *, first: bool) -> bool:
        """Begins the present round. One after the first whose process is gone or busy is passed over: False."""
        try:
            await self._begin(job, state)
        except PermilleError as error:
            if first or error.code not in _PASSED_OVER or job.cancel_requested.is_set():
                raise
            skip(state, error.message, job.request.coverage.rounds.limit)
            await _save(job, state)
            return over(state)
        return True

    async def _begin(self, job: CoverageJob, state: coverage_pb2.CoverageState) -> None:
        """Starts every session of the round, or none: what has begun when one cannot begin is stopped."""
        saving = asyncio.Lock()

        async def begin(index: int, plan: coverage_pb2.NodePlan) -> None:
            session = await self._recordings.begin(plan, job.request.coverage, _request_id(job, index))
            async with saving:
                state.sessions[index] = session.name
                await _save(job, state)

        present = present_round(state)
        if job.cancel_requested.is_set() and not any(index in state.sessions for index in present):
            raise _cancelled([name for _, name in sorted(state.sessions.items())])
        missing = [index for index in present if index not in state.sessions]
        results = await asyncio.gather(
            *(begin(index, state.plan.nodes[index]) for index in missing), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        if not errors:
            return
        if not any(isinstance(error, PermilleError) and error.reason == "OPERATION_TAKEN" for error in errors):
            await self._stop(state.sessions[index] for index in present if index in state.sessions)
        raise errors[0]

    async def _record(
        self, job: CoverageJob, state: coverage_pb2.CoverageState, wanted: Iterable[int]
    ) -> dict[int, Session]:
        """Follows sessions until all are stored; a cancellation stops them, and what they recorded is stored."""
        latest: dict[int, Session] = {}
        names = {index: state.sessions[index] for index in sorted(wanted)}
        period_ms = max((state.plan.nodes[index].period_ms for index in names), default=0)

        async def follow(index: int, name: str) -> Session:
            return await self._recordings.follow(name, lambda session: latest.__setitem__(index, session))

        async def stop_when_cancelled() -> None:
            await job.cancel_requested.wait()
            await self._stop(names.values())

        stored = await _with_companions(
            _all({index: follow(index, name) for index, name in names.items()}, job),
            _report(job, lambda: recording_stage(latest.values(), period_ms)),
            stop_when_cancelled(),
        )
        if job.cancel_requested.is_set():
            raise _cancelled([session.name for session in stored.values()])
        return stored

    async def _decode(self, job: CoverageJob, sessions: Mapping[int, Session]) -> dict[int, decoder_pb2.DecodeResult]:
        latest: dict[int, operation_pb2.Progress] = {}

        async def decode(index: int, session: Session) -> decoder_pb2.DecodeResult:
            return await self._decodings.decode(
                session.name, _request_id(job, index), lambda progress: latest.__setitem__(index, progress)
            )

        async def end_when_cancelled() -> None:
            await job.cancel_requested.wait()
            raise _cancelled([session.name for session in sessions.values()])

        return await _with_companions(
            _all({index: decode(index, session) for index, session in sessions.items()}, job),
            _report(job, lambda: decoding_stage(latest.values())),
            end_when_cancelled(),
        )

    async def _learn(
        self,
        state: coverage_pb2.CoverageState,
        sessions: Mapping[int, Session],
        decoded: Mapping[int, decoder_pb2.DecodeResult],
    ) -> None:
        for index, session in sessions.items():
            recorded_ms = (session.end_time.ToNanoseconds() - session.start_time.ToNanoseconds()) // 1_000_000
            seen = Observation(
                processes=len(state.plan.nodes[index].pids),
                recorded_ms=recorded_ms,
                raw_bytes=session.raw_bytes,
                lost_bytes=session.lost_bytes,
                decode_ms=decoded[index].decode_ms,
                functions=decoded[index].functions,
            )
            # An estimate is not worth a failed operation.
            with suppress(PermilleError):
                backend = controller_pb2.Backend.Name(session.backend).removeprefix("BACKEND_").lower()
                await self._rates.learn(backend, session.target_name, seen)

    async def _stop(self, names: Iterable[str]) -> None:
        results = await asyncio.gather(*map(self._recordings.stop, list(names)), return_exceptions=True)
        for error in results:
            if isinstance(error, PermilleError):
                _log.warning("cannot stop a recording; it ends by itself", error=error.message)
            elif isinstance(error, BaseException):
                raise error


async def _save(job: CoverageJob, state: coverage_pb2.CoverageState) -> None:
    await job.save(state.SerializeToString(deterministic=True))


async def _report(job: CoverageJob, stage: Callable[[], Stage]) -> None:
    shown: Stage | None = None
    while True:
        now = stage()
        if now != shown:
            await job.progress(now.word, now.completed, now.total, now.unit)
            shown = now
        await asyncio.sleep(_PROGRESS_S)


async def _all(work: Mapping[int, Awaitable[_T]], job: CoverageJob) -> dict[int, _T]:
    """All results; when some fail, the first error, once the others have ended too, with what the others achieved."""
    results = await asyncio.gather(*work.values(), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in errors:
        _log.warning("a part of an operation failed", operation=job.name, error=str(error))
    if errors:
        first = errors[0]
        if isinstance(first, PermilleError) and len(results) > 1:
            first.metadata["parts"] = str(len(results))
            first.metadata["failed_parts"] = str(len(errors))
        raise first
    return {index: result for index, result in zip(work, results, strict=True) if not isinstance(result, BaseException)}


async def _with_companions(work: Coroutine[Any, Any, _T], *companions: Coroutine[Any, Any, None]) -> _T:
    """The work's result; the companions end with it, and the failure of one of them is the work's."""
    main = asyncio.create_task(work)
    beside = [asyncio.create_task(companion) for companion in companions]
    try:
        running: set[asyncio.Task[Any]] = {main, *beside}
        while not main.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                # Raises what a companion, or the work, raised.
                task.result()
        return main.result()
    finally:
        for task in (main, *beside):
            task.cancel()
        await asyncio.gather(main, *beside, return_exceptions=True)


def _request_id(job: CoverageJob, index: int) -> str:
    return f"{operation_id(job.name)}-{index}"


def _cancelled(sessions: list[str]) -> Cancelled:
    kept = f"; kept, not decoded: {', '.join(sessions)}" if sessions else "; nothing was recorded"
    return Cancelled(
        f"the operation was cancelled{kept}",
        reason="OPERATION_CANCELLED",
        help="`permille report SESSION` decodes a kept session; `permille delete SESSION` deletes it"
        if sessions
        else "",
        metadata={"sessions": ",".join(sessions)},
    )
