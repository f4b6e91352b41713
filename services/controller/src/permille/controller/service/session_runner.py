"""One session from its preparation to its last byte in the object store."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from permille.controller.domain.archive import SwitchesOfSession, write_archive
from permille.controller.domain.journal import Entry, Journal
from permille.controller.domain.mapped_binaries import MappedBinaries
from permille.controller.domain.recording import Backend, ProcessRecording, RecordingConfig
from permille.controller.domain.session import Session, State, StopReason
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_recorder import SwitchCounts, SwitchRecorder
from permille.controller.service import session_metrics
from permille.controller.service.archive_uploader import upload
from permille.controller.service.buffer_planner import BufferPlan, plan_buffers
from permille.controller.service.session_registry import SessionRegistry
from permille.mesh.backoff import Backoff
from permille.mesh.channels import Channels
from permille.mesh.errors import FailedPrecondition, Internal, PermilleError, ResourceExhausted, Unavailable

if TYPE_CHECKING:
    from permille.mesh.store import ObjectStore

POLL_S = 0.01
FULL = (errno.ENOSPC, errno.EDQUOT)
MOST_BACKOFF_S = 30.0
# A process that was asked to end its recording does within a ms, unless it is itself stopped.
STOP_S = 5.0
LOST_SWITCHES = "the controller ended during the session; records until then are kept"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a session needs of its controller."""

    registry: SessionRegistry
    journal: Journal
    backend: Backend
    switches: SwitchRecorder
    binaries: MappedBinaries
    channels: Channels
    store: ObjectStore


class SessionRunner:
    """Runs one session; `resumed` when an earlier controller began it."""

    def __init__(self, parts: Parts, session: Session, *, resumed: bool = False) -> None:
        self._parts = parts
        self._session = session
        self._resumed = resumed
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ends the recording before its period is over."""
        self._stop.set()

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
        await self._parts.registry.settled(self._session.id)
        entry.remove()

    async def _live(self, entry: Entry) -> None:
        if not entry.archived:
            recordings = await self._record(entry)
            await self._archive(entry, recordings)
            await self._release()
        await self._upload(entry)

    async def _record(self, entry: Entry) -> list[ProcessRecording]:
        if self._resumed:
            return await self._take_over(entry)
        plan = await plan_buffers(
            self._parts.channels,
            self._session.pids,
            budget_bytes=self._session.budget_bytes,
            period_ms=self._session.period_ms,
        )
        self._publish(self._session.changed(expected_bytes=plan.expected_bytes))
        no_switches = await self._parts.switches.begin(self._session.id, self._session.pids, entry.raw_switches)
        try:
            # Before the recorder begins: whoever finds the journal has to look for data.
            entry.save(self._session.changed(state=State.RECORDING))
            recordings = await asyncio.to_thread(self._begin, plan)
            self._publish(self._session.advanced(State.RECORDING, start_ns=time.time_ns()))
            await self._until_finished(recordings)
        finally:
            counts = SwitchCounts(0, 0, 0, no_switches)
            if not no_switches:
                counts = await self._parts.switches.end(self._session.id)
        self._counts = counts
        self._storing(entry, recordings, self._stop_reason(recordings))
        return recordings

    async def _take_over(self, entry: Entry) -> list[ProcessRecording]:
        found = [self._parts.backend.find(pid, self._session.id) for pid in self._session.pids]
        recordings = [recording for recording in found if recording is not None]
        if not recordings:
            raise Unavailable(
                f"the controller ended before {self._session.name} recorded anything",
                reason="CONTROLLER_LOST",
                help="start the trace again",
            )
        ended_alone = all(recording.finished() for recording in recordings)
        await self._until_finished(recordings)
        self._counts = SwitchCounts(0, 0, 0, LOST_SWITCHES)
        if self._session.state == State.PREPARING:
            self._session = self._session.changed(state=State.RECORDING)
        if self._session.state == State.RECORDING:
            reason = StopReason.CONTROLLER_LOST if ended_alone else self._stop_reason(recordings)
            self._storing(entry, recordings, reason)
        return recordings

    def _begin(self, plan: BufferPlan) -> list[ProcessRecording]:
        recordings: list[ProcessRecording] = []
        try:
            for pid in self._session.pids:
                config = RecordingConfig(
                    session_id=self._session.id,
                    period_ms=self._session.period_ms,
                    options=self._session.options,
                    buffers=plan.buffers[pid],
                    reserve=plan.reserve,
                    reserve_buffer_bytes=plan.reserve_buffer_bytes,
                )
                recordings.append(self._parts.backend.begin(pid, config))
        except PermilleError:
            for recording in recordings:
                recording.stop()
            raise
        return recordings

    async def _until_finished(self, recordings: Sequence[ProcessRecording]) -> None:
        while not all(recording.finished() for recording in recordings):
            if self._stop.is_set():
                for recording in recordings:
                    recording.stop()
            await asyncio.sleep(POLL_S)

    def _stop_reason(self, recordings: Sequence[ProcessRecording]) -> StopReason:
        if all(recording.exited() for recording in recordings):
            return StopReason.TARGET_EXITED
        return StopReason.STOPPED if self._stop.is_set() else StopReason.PERIOD

    def _storing(self, entry: Entry, recordings: Sequence[ProcessRecording], reason: StopReason) -> None:
        clocks = [recording.realtime() for recording in recordings]
        streams = [stream for recording in recordings for stream in recording.streams()]
        self._publish(
            self._session.advanced(
                State.STORING,
                start_ns=min(clock.ns0 for clock in clocks),
                end_ns=max(clock.ns1 for clock in clocks),
                stop_reason=reason,
                raw_bytes=sum(stream.size_bytes for stream in streams),
                lost_bytes=sum(stream.lost_bytes for stream in streams),
                segments=len(streams),
            )
        )
        entry.save(self._session)

    async def _archive(self, entry: Entry, recordings: Sequence[ProcessRecording]) -> None:
        """Into the journal's folder, again and again while the disk is full: the recorder keeps its data."""
        pauses = Backoff(most_s=MOST_BACKOFF_S)
        while True:
            try:
                manifest = await asyncio.to_thread(self._write_archive, entry, recordings)
            except OSError as error:
                self._wait_for(disk_error(error))
                await pauses.pause()
                continue
            stored = sum(segment["stored_bytes"] for segment in manifest["segments"])
            self._publish(self._session.changed(stored_bytes=stored))
            entry.save(self._session)
            return

    def _write_archive(self, entry: Entry, recordings: Sequence[ProcessRecording]) -> dict[str, Any]:
        try:
            raw = entry.raw_switches.read_bytes()
        except FileNotFoundError:
            raw = b""
        records = switch_records.to_tsc(switch_records.parse(raw), recordings[0].monotonic())
        switches = SwitchesOfSession(records, self._counts)
        return write_archive(entry.folder, self._session, recordings, switches, self._parts.binaries.find)

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
        await self._release()
        if not self._session.state.final:
            self._publish(self._session.failed(error))

    async def _release(self) -> None:
        for pid in self._session.pids:
            recording = self._parts.backend.find(pid, self._session.id)
            if recording is None:
                continue
            recording.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._until_finished([recording])
            recording.release()

    def _wait_for(self, error: PermilleError) -> None:
        if error.reason != self._session.error_reason:
            _log.warning("a session cannot be stored; trying again", session=self._session.name, error=error.message)
        self._publish(self._session.waiting(error))

    def _publish(self, session: Session) -> None:
        self._session = session
        self._parts.registry.publish(session)


def disk_error(error: OSError) -> PermilleError:
    kind = ResourceExhausted if error.errno in FULL else FailedPrecondition
    return kind(
        f"the recording cannot be written: {error}",
        reason="STATE_DIR_FULL" if error.errno in FULL else "STATE_DIR_UNWRITABLE",
        help="free space in the controller's state_dir; what was recorded is kept until then",
        retry_after_s=5.0,
    )
