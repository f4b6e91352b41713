"""One session from its preparation to its last byte in the object store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import structlog
from permille.controller.domain import processes
from permille.controller.domain.archive import NO_JIT_FILES, SWITCHES, SwitchesOfSession, pack, spool
from permille.controller.domain.backends import Backends
from permille.controller.domain.jit_files import JitFiles
from permille.controller.domain.journal import Entry, Journal
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.node_use.core_observations import CoreObservation
from permille.controller.domain.pace import Pace
from permille.controller.domain.progress import Progress
from permille.controller.domain.recording import (
    Backend,
    CoreBuffers,
    Recording,
    RecordingConfig,
    ThreadBuffers,
    counters_of,
)
from permille.controller.domain.session import NO_ERROR, Session, State, StopReason
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_recorder import SwitchCounts, SwitchRecorder
from permille.controller.domain.unrecorded import of_threads, overwritten, unrecorded
from permille.controller.service import session_metrics
from permille.controller.service.archive_uploader import upload
from permille.controller.service.core_planner import learn, observed
from permille.controller.service.core_rates import CoreRates
from permille.controller.service.session_planner import SessionPlanner
from permille.controller.service.session_registry import SessionRegistry
from permille.mesh.backoff import Backoff
from permille.mesh.errors import FailedPrecondition, Internal, NotFound, PermilleError, ResourceExhausted, Unavailable
from permille.mesh.memory import give_back
from permille.mesh.no_room import is_no_room

if TYPE_CHECKING:
    from permille.mesh.store import ObjectStore

POLL_S = 0.01
MOST_BACKOFF_S = 30.0
# How often a watcher learns how far a recording is.
PROGRESS_S = 0.25
# A process that was asked to end its recording does within a ms, unless it is itself stopped.
STOP_S = 5.0
# Packets of a session are written in seconds; a disk that is full takes for ever.
LEAVE_S = 10.0
LOST_SWITCHES = "the controller ended during the session; records until then are kept"

_T = TypeVar("_T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a session needs of its controller."""

    registry: SessionRegistry
    journal: Journal
    backends: Backends
    switches: SwitchRecorder
    rates: CoreRates
    binaries: MappedBinaries
    planner: SessionPlanner
    store: ObjectStore
    # Of one core, for packing what was recorded.
    cpu_share: float


class SessionRunner:
    """Runs one session; `resumed` when an earlier controller began it."""

    def __init__(self, parts: Parts, session: Session, *, resumed: bool = False) -> None:
        self._parts = parts
        self._session = session
        self._resumed = resumed
        self._stop = asyncio.Event()
        self._recordings: Sequence[Recording] = ()
        self._spooled = asyncio.Event()
        # CLOCK_MONOTONIC, s; 0: not known, perhaps long ago.
        self._ends = 0.0
        # CLOCK_MONOTONIC, s: when watchers are told next.
        self._told = 0.0
        self._pace = Pace(parts.cpu_share)
        # Of a plan by cores.
        self._notes: tuple[str, ...] = ()
        self._binary = ""
        # Those of the switch recorder, which a back end that records its own does not need.
        self._counts = SwitchCounts(0, 0, 0)
        self._jit: JitFiles | None = None

    def stop(self) -> None:
        """Ends the recording before its period is over."""
        self._stop.set()

    async def leave(self) -> None:
        """Sees to it that what dies with this process is on disk; ends a recording of which nothing would be left."""
        self._pace.hurry()
        if self._backend.by_core and self._recordings:
            self.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._spooled.wait()

    async def run(self) -> None:
        """Returns when the session is stored or has failed and etcd knows it."""
        try:
            entry = self._parts.journal.open(self._session)
        except OSError as error:
            self._publish(self._session.failed(disk_error(error)))
            return
        try:
            await self._live(entry)
        except PermilleError as error:
            await self._fail(entry, error)
        except Exception as error:
            _log.exception("a session met an unexpected error", session=self._session.name)
            await self._fail(entry, Internal(f"unexpected error: {error!r}", reason="UNEXPECTED", help="see the log"))
        session_metrics.count(self._session)
        if self._jit is not None:
            self._jit.close()
        await self._parts.registry.settled(self._session.id)
        entry.remove()
        await asyncio.to_thread(give_back)

    async def _live(self, entry: Entry) -> None:
        seen: Sequence[CoreObservation] = ()
        # Of sessions that run at once each owes for all, which only makes them slower.
        used_s = time.process_time()
        if not entry.spooled:
            recordings = await self._record(entry)
            await self._until_written(lambda: self._spool(entry, recordings))
            if self._backend.by_core:
                seen = await asyncio.to_thread(observed, recordings[0], entry.folder / SWITCHES)
        self._spooled.set()
        await self._release(entry)
        if not entry.archived:
            self._publish(self._session.changed(holds=False, **NO_ERROR))
            await learn(self._parts.rates, self._session, seen, self._binary)
            self._pace.owe(time.process_time() - used_s)
            manifest = await self._until_written(lambda: pack(entry.folder, pace=self._pace))
            stored = sum(segment["stored_bytes"] for segment in manifest["segments"])
            self._publish(self._session.changed(stored_bytes=stored))
            entry.save(self._session)
        await self._upload(entry)

    async def _record(self, entry: Entry) -> Sequence[Recording]:
        self._jit = JitFiles(entry.folder)
        if self._resumed:
            return await self._take_over(entry)
        backend = self._backend
        plan = await self._parts.planner.plan(
            backend, self._session.pids, budget_bytes=self._session.budget_bytes, period_ms=self._session.period_ms
        )
        self._binary = plan.binary
        if backend.by_core:
            left_out = (core for core in plan.planned if not core.size_bytes)
            self._notes = tuple(f"core {core.unit} was not recorded: {core.reason}" for core in left_out)
        self._publish(self._session.changed(expected_bytes=plan.expected_bytes, plan=plan.planned))
        no_switches = ""
        if not backend.by_core:
            no_switches = await self._parts.switches.begin(self._session.id, self._session.pids, entry.raw_switches)
        try:
            # Before the recorder begins: whoever finds the journal has to look for data.
            entry.save(self._session.changed(state=State.RECORDING))
            self._recordings = await self._begun(entry, plan.buffers)
            self._ends = time.monotonic() + self._session.period_ms / 1e3
            self._publish(self._session.advanced(State.RECORDING, start_ns=time.time_ns()))
            await self._until_finished(entry, self._recordings)
        finally:
            self._counts = SwitchCounts(0, 0, 0, no_switches)
            if not no_switches and not backend.by_core:
                self._counts = await self._parts.switches.end(self._session.id)
        self._storing(entry, self._recordings, self._stop_reason(self._recordings))
        return self._recordings

    async def _begun(self, entry: Entry, buffers: ThreadBuffers | CoreBuffers) -> Sequence[Recording]:
        """The recordings of the processes, where they were found by a name of those that are left."""
        while True:
            session = self._session
            config = RecordingConfig(
                session.id, session.pids, session.period_ms, session.options, buffers, session.group
            )
            try:
                return await asyncio.to_thread(self._backend.begin, config)
            except NotFound:
                left = processes.left_of(session.pids) if session.found else ()
                if not left or left == session.pids:
                    raise
            # What has begun with one that is gone begins anew.
            await self._release(entry)
            self._publish(session.changed(pids=left))

    async def _take_over(self, entry: Entry) -> Sequence[Recording]:
        self._recordings = self._backend.find(self._session.pids, self._session.id)
        if not self._recordings:
            raise lost(self._session, self._backend)
        ended_alone = all(recording.finished() for recording in self._recordings)
        begun_ns = min(recording.realtime().ns0 for recording in self._recordings)
        self._ends = time.monotonic() + self._session.period_ms / 1e3 - (time.time_ns() - begun_ns) / 1e9
        await self._until_finished(entry, self._recordings)
        self._counts = SwitchCounts(0, 0, 0, LOST_SWITCHES)
        if self._session.state == State.PREPARING:
            self._session = self._session.changed(state=State.RECORDING)
        if self._session.state == State.RECORDING:
            reason = StopReason.CONTROLLER_LOST if ended_alone else self._stop_reason(self._recordings)
            self._storing(entry, self._recordings, reason)
        return self._recordings

    async def _until_finished(self, entry: Entry, recordings: Sequence[Recording]) -> None:
        while not all(recording.finished() for recording in recordings):
            if self._stop.is_set():
                for recording in recordings:
                    recording.stop()
            await self._collect(entry, recordings)
            await self._look(recordings)
            await self._tell_watchers(recordings)
            await self._pause(min(recording.pause_s for recording in recordings))
        await self._collect(entry, recordings)

    async def _pause(self, most_s: float) -> None:
        """Until something may have to be done: at the end of the period, or when somebody wants it to end, often."""
        left_s = 0 if self._stop.is_set() else self._ends - time.monotonic()
        if left_s <= POLL_S:
            await asyncio.sleep(POLL_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left_s, most_s)):
                await self._stop.wait()

    async def _collect(self, entry: Entry, recordings: Sequence[Recording]) -> None:
        if self._backend.by_core:
            for recording in recordings:
                await asyncio.to_thread(recording.collect, entry.raw_switches)

    async def _look(self, recordings: Sequence[Recording]) -> None:
        pids = [pid for recording in recordings for pid in recording.pids]
        if self._jit is not None and self._jit.due(pids):
            # What found no room now is taken at the end.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._jit.look, pids)

    async def _tell_watchers(self, recordings: Sequence[Recording]) -> None:
        registry, now = self._parts.registry, time.monotonic()
        if now >= self._told and registry.watched(self._session.id):
            self._told = now + PROGRESS_S
            registry.progressed(self._session.id, await asyncio.to_thread(self._progress, recordings))

    def _progress(self, recordings: Sequence[Recording]) -> Progress:
        buffers = tuple(buffer for recording in recordings for buffer in recording.progress())
        return Progress(buffers, max(0, round((self._ends - time.monotonic()) * 1e3)))

    @property
    def _backend(self) -> Backend:
        return self._parts.backends.of(self._session.backend)

    def _stop_reason(self, recordings: Sequence[Recording]) -> StopReason:
        if all(recording.exited() for recording in recordings):
            return StopReason.TARGET_EXITED
        return StopReason.STOPPED if self._stop.is_set() else StopReason.PERIOD

    def _storing(self, entry: Entry, recordings: Sequence[Recording], reason: StopReason) -> None:
        clocks = [recording.realtime() for recording in recordings]
        streams = [stream for recording in recordings for stream in recording.streams()]
        progress = replace(self._progress(recordings), remaining_ms=0)
        self._parts.registry.progressed(self._session.id, progress)
        self._publish(
            self._session.advanced(
                State.STORING,
                start_ns=min(clock.ns0 for clock in clocks),
                end_ns=max(clock.ns1 for clock in clocks),
                stop_reason=reason,
                raw_bytes=sum(stream.size_bytes for stream in streams),
                lost_bytes=sum(stream.lost_bytes for stream in streams),
                segments=len(streams),
                holds=True,
                counters=counters_of(streams),
                full_buffers=sum(buffer.full for buffer in progress.buffers),
                lost_records=self._counts.dropped + sum(buffer.lost_records for buffer in progress.buffers),
            )
        )
        entry.save(self._session)

    async def _until_written(self, write: Callable[[], _T]) -> _T:
        """In a thread, again and again while the disk is full: what is to be written is kept where it is."""
        pauses = Backoff(most_s=MOST_BACKOFF_S)
        while True:
            try:
                return await asyncio.to_thread(write)
            except OSError as error:
                self._wait_for(disk_error(error))
                await pauses.pause()

    def _spool(self, entry: Entry, recordings: Sequence[Recording]) -> None:
        switches = self._switches(entry, recordings)
        jit = self._jit.take() if self._jit is not None else NO_JIT_FILES
        spool(entry.folder, self._session, recordings, switches, self._parts.binaries.find, jit=jit)

    def _switches(self, entry: Entry, recordings: Sequence[Recording]) -> SwitchesOfSession:
        recording = recordings[0]
        own = recording.own_switches(entry.raw_switches)
        without_room = own.counts.unseen if own is not None else 0
        told = unrecorded(self._session, joins=self._backend.joins, without_room=without_room)
        lost = (*of_threads(recordings), *overwritten(recording.streams(), recording.realtime()))
        notes = (*self._notes, *told, *lost)
        if own is not None:
            return SwitchesOfSession(own.records, own.counts, own.thread_names, (*notes, *own.notes))
        records = switch_records.to_tsc(switch_records.in_time_order(entry.raw_switches), recording.monotonic())
        return SwitchesOfSession(records, self._counts, notes=notes)

    async def _upload(self, entry: Entry) -> None:
        pauses = Backoff(most_s=MOST_BACKOFF_S)
        while True:
            try:
                await upload(self._parts.store, self._session, entry.folder)
                break
            except (PermilleError, OSError) as error:
                self._wait_for(error if isinstance(error, PermilleError) else disk_error(error))
                await pauses.pause()
        self._publish(self._session.advanced(State.STORED))

    async def _fail(self, entry: Entry, error: PermilleError) -> None:
        await self._release(entry)
        if not self._session.state.final:
            self._publish(self._session.failed(error))

    async def _release(self, entry: Entry) -> None:
        left = self._recordings or self._backend.find(self._session.pids, self._session.id)
        self._recordings = ()
        for recording in left:
            if not recording.finished():
                recording.stop()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await self._until_finished(entry, [recording])
            recording.release()

    def _wait_for(self, error: PermilleError) -> None:
        if error.reason != self._session.error_reason:
            _log.warning("a session cannot be stored; trying again", session=self._session.name, error=error.message)
        self._publish(self._session.waiting(error))

    def _publish(self, session: Session) -> None:
        self._session = session
        self._parts.registry.publish(session)


def lost(session: Session, backend: Backend) -> Unavailable:
    what = "it recorded anything"
    if backend.by_core and session.state != State.PREPARING:
        what = "it was stored: the kernel ended the recording with its controller, and took the memory back"
    return Unavailable(
        f"the controller of {session.name} ended before {what}",
        reason="CONTROLLER_LOST",
        help="start the trace again",
    )


def disk_error(error: OSError) -> PermilleError:
    full = is_no_room(error)
    kind = ResourceExhausted if full else FailedPrecondition
    return kind(
        f"the recording cannot be written: {error}",
        reason="STATE_DIR_FULL" if full else "STATE_DIR_UNWRITABLE",
        help="free space in the controller's state_dir; what was recorded is kept until then",
        retry_after_s=5.0,
    )
