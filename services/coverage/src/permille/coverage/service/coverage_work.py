"""The work behind a coverage operation: record, store, decode; begun again by another process it repeats nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeGuard, TypeVar

import structlog
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.api.decoder.v1 import decoder_pb2
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.rates import Observation
from permille.coverage.service.adaptive_rounds import AdaptiveRounds, over, present_round, skip, stop
from permille.coverage.service.decoding import Decodings
from permille.coverage.service.group_commit import GroupCommit
from permille.coverage.service.heavy_nodes import HeavyNodes, busy
from permille.coverage.service.progress import Stage, decoding_stage, pause_s, recording_stage
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.recording import Recordings
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.turn import Turn
from permille.coverage.service.wire import backend_word, node_failure
from permille.mesh.errors import Cancelled, Code, PermilleError
from permille.mesh.operation_names import part_request_id
from permille.mesh.operation_runner import Job

Session = controller_pb2.Session
CoverageJob = Job[coverage_pb2.StartCoverageRequest]
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
# The state has all sessions and is written with those that have begun: the more there are, the more share a write.
_SAVE_PART_S = 0.0002
# Each is asked after until it is done: a thousand that wait for their turn would be asked after for as long.
_DECODES_AT_ONCE = 64
_AWAY = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
# Why a later round's process is passed over: it ended, somebody else records it, or heavily on its node.
_PASSED_OVER = (Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED)


class CoverageWork:
    """Called by the operation runner for each operation, perhaps again after a crash."""

    def __init__(
        self,
        recordings: Recordings,
        decodings: Decodings,
        rates: RateStore,
        *,
        rounds: AdaptiveRounds,
        nodes: HeavyNodes,
        profiles: SessionProfiles,
        history: int,
        patience_s: float,
    ) -> None:
        self._recordings = recordings
        self._decodings = decodings
        self._rates = rates
        self._rounds = rounds
        self._nodes = nodes
        self._profiles = profiles
        self._history = history
        self._patience_s = patience_s

    async def __call__(self, job: CoverageJob) -> coverage_pb2.CoverageResult:
        """Runs one operation to its end; a part that fails after it has begun is told in the result, others go on.

        Raises the first error met when no part is left, after everything has come to its own end.
        """
        state = coverage_pb2.CoverageState.FromString(await job.saved())
        sessions: dict[int, Session] = {}
        decoded: dict[int, decoder_pb2.DecodeResult] = {}
        failed: dict[int, PermilleError] = {}
        adaptive = bool(state.plan.later) or job.request.coverage.rounds.limit > 0
        while True:
            if not over(state) and not await self._begun(job, state, failed):
                continue
            # After a crash also those of earlier rounds, which are stored and decoded: that is soon said.
            stored, lost = await self._tolerant(job, state, self._record(job, state, _open(state, sessions, failed)))
            if _heavy(state):
                await self._nodes.take(job.name, ())
            done, undecoded = await self._tolerant(job, state, self._decode(job, stored))
            sessions |= {index: stored[index] for index in done}
            decoded |= done
            failed |= lost | undecoded
            if not adaptive or over(state):
                break
            broken = [failed[index] for index in present_round(state) if index not in sessions]
            if broken:
                skip(state, broken[0].message, job.request.coverage.rounds.limit)
            else:
                await self._judge(job, state, sessions)
            await _save(job, state)
            if over(state):
                break
        await self._learn(state, sessions, decoded)
        return coverage_pb2.CoverageResult(
            plan=state.plan,
            sessions=[session.name for _, session in sorted(sessions.items())],
            rounds=state.rounds,
            failures=[
                node_failure(state.plan.nodes[index].node, state.sessions.get(index, ""), error)
                for index, error in sorted(failed.items())
            ],
        )

    async def _judge(self, job: CoverageJob, state: coverage_pb2.CoverageState, sessions: Iterable[int]) -> None:
        try:
            await self._rounds.judge(job.request.coverage.rounds, state, sessions)
        except PermilleError as error:
            if _must_end(job, error):
                raise
            stop(state, error.message)

    async def _tolerant(
        self,
        job: CoverageJob,
        state: coverage_pb2.CoverageState,
        work: Awaitable[tuple[dict[int, _T], dict[int, PermilleError]]],
    ) -> tuple[dict[int, _T], dict[int, PermilleError]]:
        """A later round that fails does not take from an operation what earlier ones achieved."""
        try:
            return await work
        except PermilleError as error:
            if not state.rounds or over(state) or _must_end(job, error):
                raise
            return {}, dict.fromkeys(present_round(state), error)

    async def _begun(
        self, job: CoverageJob, state: coverage_pb2.CoverageState, failed: dict[int, PermilleError]
    ) -> bool:
        """Begins the present round. One after the first whose process is gone or busy is passed over: False."""
        try:
            failed |= await self._begin(job, state)
        except PermilleError as error:
            if not state.rounds or error.code not in _PASSED_OVER or job.cancel_requested.is_set():
                raise
            if _heavy(state):
                await self._nodes.take(job.name, ())
            skip(state, error.message, job.request.coverage.rounds.limit)
            await _save(job, state)
            return over(state)
        return True

    async def _begin(self, job: CoverageJob, state: coverage_pb2.CoverageState) -> dict[int, PermilleError]:
        """Starts every session of the round, or none: what has begun when one refuses is stopped.

        A node that is away, on which others still record the process, or where it has ended, refuses nothing: where
        others have begun, its error is returned.
        """
        saving = GroupCommit(lambda: _save(job, state), len(state.plan.nodes) * _SAVE_PART_S)

        async def begin(index: int, plan: coverage_pb2.NodePlan) -> None:
            session = await self._recordings.begin(plan, job.request.coverage, part_request_id(job.name, index))
            state.sessions[index] = session.name
            await saving.commit()

        present = present_round(state)
        if job.cancel_requested.is_set() and not any(index in state.sessions for index in present):
            raise _cancelled([name for _, name in sorted(state.sessions.items())])
        missing = [index for index in present if index not in state.sessions]
        if missing and _heavy(state):
            await self._take_nodes(job, state)
        turn, told = Turn(self._patience_s), dict[int, PermilleError]()
        while True:
            results = await asyncio.gather(
                *(begin(index, state.plan.nodes[index]) for index in missing), return_exceptions=True
            )
            errors = {index: one for index, one in zip(missing, results, strict=True) if isinstance(one, BaseException)}
            told |= {index: one for index, one in errors.items() if _refuses_nothing(one)}
            refused = [error for index, error in errors.items() if index not in told]
            holders = _recording_them(told)
            if refused or not holders or not _waits(job, state) or not turn.may_come(holders):
                break
            if job.cancel_requested.is_set():
                # What has begun is stopped and kept as of any other that is cancelled.
                if any(index in state.sessions for index in present):
                    break
                raise _cancelled([])
            await job.progress("WAITING")
            await turn.pause()
            missing = sorted(holders)
            for index in missing:
                del told[index]
        if not refused and len(told) < len(present):
            return told
        if not any(isinstance(error, PermilleError) and error.reason == "OPERATION_TAKEN" for error in refused):
            await self._stop(state.sessions[index] for index in present if index in state.sessions)
        raise next(iter(refused or told.values()))

    async def _take_nodes(self, job: CoverageJob, state: coverage_pb2.CoverageState) -> None:
        """Waits until no other heavy session is on a node where one is to begin; a later round does not wait."""
        turn = Turn(self._patience_s)
        while holders := await self._nodes.take(job.name, _heavy(state)):
            if state.rounds or not turn.may_come(holders):
                raise busy(min(holders))
            if job.cancel_requested.is_set():
                raise _cancelled([])
            await job.progress("WAITING")
            await turn.pause()

    async def _record(
        self, job: CoverageJob, state: coverage_pb2.CoverageState, wanted: Iterable[int]
    ) -> tuple[dict[int, Session], dict[int, PermilleError]]:
        """Follows sessions until all are stored or have failed; a cancellation stops them, what they have is stored."""
        latest: dict[int, Session] = {}
        names = {index: state.sessions[index] for index in sorted(wanted)}
        period_ms = max((state.plan.nodes[index].period_ms for index in names), default=0)

        async def follow(index: int, name: str) -> Session:
            return await self._recordings.follow(name, lambda session: latest.__setitem__(index, session))

        async def stop_when_cancelled() -> None:
            await job.cancel_requested.wait()
            await self._stop(names.values())

        stored, failed = await _with_companions(
            _surviving({index: follow(index, name) for index, name in names.items()}, job),
            _report(job, lambda: recording_stage(latest.values(), period_ms), len(names)),
            stop_when_cancelled(),
        )
        if job.cancel_requested.is_set():
            raise _cancelled([session.name for session in stored.values()])
        return stored, failed

    async def _decode(
        self, job: CoverageJob, sessions: Mapping[int, Session]
    ) -> tuple[dict[int, decoder_pb2.DecodeResult], dict[int, PermilleError]]:
        latest: dict[int, operation_pb2.Progress] = {}
        slots = asyncio.Semaphore(_DECODES_AT_ONCE)

        async def decode(index: int, session: Session) -> decoder_pb2.DecodeResult:
            async with slots:
                return await self._decodings.decode(
                    session.name, part_request_id(job.name, index), lambda progress: latest.__setitem__(index, progress)
                )

        async def end_when_cancelled() -> None:
            await job.cancel_requested.wait()
            raise _cancelled([session.name for session in sessions.values()])

        return await _with_companions(
            _surviving({index: decode(index, session) for index, session in sessions.items()}, job),
            _report(job, lambda: decoding_stage(latest.values()), len(sessions)),
            end_when_cancelled(),
        )

    async def _learn(
        self,
        state: coverage_pb2.CoverageState,
        sessions: Mapping[int, Session],
        decoded: Mapping[int, decoder_pb2.DecodeResult],
    ) -> None:
        known: dict[str, int] = {}
        for name in {session.target_name for session in sessions.values()}:
            with suppress(PermilleError):
                known[name] = await self._profiles.blocks_seen(name, self._history)
        learnt: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for index, session in sessions.items():
            recorded_ms = (session.end_time.ToNanoseconds() - session.start_time.ToNanoseconds()) // 1_000_000
            seen = Observation(
                processes=len(state.plan.nodes[index].pids),
                recorded_ms=recorded_ms,
                raw_bytes=session.raw_bytes,
                lost_bytes=session.lost_bytes,
                decode_ms=decoded[index].decode_ms,
                # Of a recording in which nothing could be decoded nothing is known; a function has one block at least.
                blocks=max(decoded[index].functions, known.get(session.target_name, 0)) or None,
            )
            learnt[backend_word(session.backend), session.target_name].append(seen)
        for (backend, name), every in learnt.items():
            # An estimate is not worth a failed operation.
            with suppress(PermilleError):
                await self._rates.learn(backend, name, *every)

    async def _stop(self, names: Iterable[str]) -> None:
        results = await asyncio.gather(*map(self._recordings.stop, list(names)), return_exceptions=True)
        for error in results:
            if isinstance(error, PermilleError):
                _log.warning("cannot stop a recording; it ends by itself", error=error.message)
            elif isinstance(error, BaseException):
                raise error


def _open(
    state: coverage_pb2.CoverageState, sessions: Mapping[int, Session], failed: Mapping[int, PermilleError]
) -> set[int]:
    """Sessions that have begun and of which the end is not known here."""
    return set(state.sessions) - set(sessions) - set(failed)


def _refuses_nothing(error: BaseException) -> TypeGuard[PermilleError]:
    passes = ("ALREADY_TRACED", "TARGET_ENDED")
    return isinstance(error, PermilleError) and (error.code in _AWAY or error.reason in passes)


def _recording_them(errors: Mapping[int, PermilleError]) -> dict[int, str]:
    """The session of others that records a process of this part of the plan."""
    traced = {index: error for index, error in errors.items() if error.reason == "ALREADY_TRACED"}
    return {index: error.metadata.get("session", "") for index, error in traced.items()}


def _waits(job: CoverageJob, state: coverage_pb2.CoverageState) -> bool:
    """Whether others' recordings of its processes are waited for: who alone is meant on demand is told at once."""
    anomaly = job.request.coverage.purpose == coverage_pb2.PURPOSE_ANOMALY
    return not state.rounds and (anomaly or len(present_round(state)) > 1)


def _must_end(job: CoverageJob, error: PermilleError) -> bool:
    return job.cancel_requested.is_set() or error.reason == "OPERATION_TAKEN"


def _heavy(state: coverage_pb2.CoverageState) -> set[str]:
    """Nodes that the present round needs for itself."""
    return {plan.node for plan in map(state.plan.nodes.__getitem__, present_round(state)) if plan.heavy}


async def _save(job: CoverageJob, state: coverage_pb2.CoverageState) -> None:
    await job.save(state.SerializeToString(deterministic=True))


async def _report(job: CoverageJob, stage: Callable[[], Stage], parts: int) -> None:
    shown: Stage | None = None
    while True:
        now = stage()
        if now != shown:
            await job.progress(now.word, now.completed, now.total, now.unit, waiting=now.waiting)
            shown = now
        await asyncio.sleep(pause_s(parts))


async def _surviving(
    work: Mapping[int, Awaitable[_T]], job: CoverageJob
) -> tuple[dict[int, _T], dict[int, PermilleError]]:
    """The results and the errors of those without; raises the first error when all failed, or when one says more."""
    results = dict(zip(work, await asyncio.gather(*work.values(), return_exceptions=True), strict=True))
    failed: dict[int, PermilleError] = {}
    for index, error in results.items():
        if isinstance(error, PermilleError) and error.reason != "OPERATION_TAKEN":
            _log.warning("a part of an operation failed", operation=job.name, error=str(error))
            failed[index] = error
        elif isinstance(error, BaseException):
            raise error
    if failed and len(failed) == len(results):
        raise next(iter(failed.values()))
    return {index: result for index, result in results.items() if not isinstance(result, BaseException)}, failed


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
