"""The back end perf: the kernel's own driver of the processor's trace unit, where no module may be loaded."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import psutil
from permille.controller.domain import perf_layout as perf
from permille.controller.domain import processes
from permille.controller.domain.image_events import ImageEvent, image_event
from permille.controller.domain.image_watch import ImageWatch
from permille.controller.domain.node_use import cpu_list
from permille.controller.domain.perf_clock import PerfClock
from permille.controller.domain.perf_events import BACKEND, event_of, open_event, refused
from permille.controller.domain.perf_layout import Record
from permille.controller.domain.perf_newest import begins_at
from permille.controller.domain.perf_records import NO_ROOM, PerfRecord, lost
from permille.controller.domain.perf_session import PerfSession
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.pt_model import processor
from permille.controller.domain.recording import (
    CoreBuffers,
    OwnSwitches,
    ProcessChanges,
    PtModel,
    RecordableProcess,
    RecordingConfig,
    Stream,
)
from permille.controller.domain.session import TraceOptions
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.switches.switch_records import Anchors, SwitchRecord
from permille.controller.domain.target_images import TargetImages
from permille.mesh.errors import FailedPrecondition

# Whom the kernel has forgotten already.
NOBODY = 0xFFFFFFFF
_EXIT = struct.Struct("<III")
_AUX = struct.Struct("<QQQ")


class PerfBackend:
    """Any process of this machine can be recorded, as long as nobody else uses intel_pt."""

    name = BACKEND
    by_core = True
    joins = False
    snapshots = True

    def require(self) -> None:
        attr = event_of(TraceOptions())
        PerfClock().close()
        try:
            os.close(open_event(attr, 0, -1))
        except OSError as error:
            why = refused(error)
            # What is busy only now is there.
            if not isinstance(why, FailedPrecondition) or why.retry_after_s is None:
                raise why from None

    def processes(self) -> list[RecordableProcess]:
        """None needs to be made ready."""
        return []

    def process(self, pid: int) -> RecordableProcess | None:
        process = processes.describe(pid)
        return process if process is not None and process.command_line else None

    def begin(self, config: RecordingConfig) -> list[PerfRecording]:
        if not isinstance(config.buffers, CoreBuffers):
            raise TypeError("perf records by core")
        attr = event_of(config.options)
        with contextlib.ExitStack() as begun:
            clock = PerfClock()
            begun.callback(clock.close)
            # Before the events, so that nothing is done between that is not told.
            watch = ImageWatch(cpu_list.online())
            begun.callback(watch.close)
            session = PerfSession(attr, config.pids, config.buffers.sizes, snapshot=config.options.snapshot)
            begun.callback(session.close)
            recording = PerfRecording(session, clock, config.pids, config.period_ms, watch)
            begun.pop_all()
        return [recording]

    def find(self, pids: Sequence[int], session_id: str) -> list[PerfRecording]:
        """Nothing: the kernel ended the events when their owner was gone, and took the memory back."""
        return []

    def free_bytes(self) -> int:
        return int(psutil.virtual_memory().available)

    def collect_garbage(self, sessions: Collection[str]) -> None:
        """The kernel does."""


class PerfRecording:
    """One session, from its start. Its period is watched by whoever asks whether it is over."""

    # Its buffers are the cores'.
    unbuffered_threads = 0
    cut_off_threads = 0

    def __init__(
        self, session: PerfSession, clock: PerfClock, pids: Sequence[int], period_ms: int, watch: ImageWatch
    ) -> None:
        self._session = session
        self._clock = clock
        self._watch = watch
        self._images = TargetImages(pids, self._now)
        self._ended: tuple[int, int] | None = None
        self._exited = False
        self._counted: dict[int, Counter[str]] = {core: Counter() for core in session.buffers}
        self._stays: dict[int, list[int]] = {}
        self._images.look()
        self._begun = clock.now()
        self._deadline = time.monotonic() + period_ms / 1000
        session.enable()
        if watch.missed:
            # The session tells what comes from here on, and not what has come since the first look.
            self._images.look()

    @property
    def pids(self) -> list[int]:
        return self._images.pids

    def finished(self) -> bool:
        if self._ended is None:
            self._exited = self._session.all_exited()
            if self._exited or time.monotonic() >= self._deadline:
                self._session.disable()
                self._ended = self._clock.now()
        return self._ended is not None

    def exited(self) -> bool:
        return self._exited

    @property
    def pause_s(self) -> float:
        """In which a ring does not fill: three million switches a second find room."""
        return 0.01

    def collect(self, switches: Path) -> None:
        until = self._now()
        records = list(self._session.take())
        taken = [switch for record in records if (switch := self._take(record)) is not None]
        with switches.open("ab") as file:
            file.write(switch_records.pack(taken))
        self._images.tell(self._told(records), until)
        for pid in {switch.pid for switch in taken}:
            self._images.follow(pid)
        self._images.keep_up(ended=self._ended is not None)

    def progress(self) -> list[BufferProgress]:
        """As the driver told when a target last left each core."""
        return [
            BufferProgress(
                size_bytes=self._session.written(core),
                buffer_bytes=size,
                full=self._full(core, size),
                stopped=self._full(core, size),
                lost_records=self._counted[core]["lost_records"],
                core=core,
            )
            for core, size in self._session.buffers.items()
        ]

    def stop(self) -> None:
        self._deadline = 0.0

    def release(self) -> None:
        self._watch.close()
        self._session.close()
        self._clock.close()

    def model(self) -> PtModel:
        return processor()

    def realtime(self) -> Anchors:
        return Anchors(*self._begun, *(self._ended or self._clock.now()))

    def monotonic(self) -> Anchors:
        """For jitdumps: its switch records have the TSC."""
        return self.realtime().monotonic()

    def streams(self) -> list[Stream]:
        return [
            Stream(
                index=index,
                tid=0,
                thread_name="",
                size_bytes=sum(end - begin for begin, end in self._session.kept(core)),
                buffer_bytes=size,
                full=self._full(core, size),
                lost_bytes=0,
                lost_blocks=0,
                first_tsc=self._first_tsc(core),
                last_tsc=self._stays.get(core, [0])[-1],
                epochs=(),
                core=core,
                counters=dict(self._counted[core]),
                overwritten=self._session.overwrites(core),
            )
            for index, (core, size) in enumerate(self._session.buffers.items())
            if self._session.written(core)
        ]

    def packets(self, stream: Stream) -> Iterator[bytes]:
        return self._session.packets(stream.core)

    def images(self) -> Iterator[ProcessChanges]:
        return self._images.changes()

    def own_switches(self, collected: Path) -> OwnSwitches:
        partial = [f"core {core}" for core, counted in self._counted.items() if counted["partial"]]
        counts = SwitchCounts(
            count=switch_records.count(collected),
            dropped=sum(counted["lost_records"] for counted in self._counted.values()),
            unseen=0,
            unavailable=f"{', '.join(partial)}: KVM had the trace unit for a time" if partial else "",
        )
        notes = tuple(self._images.notes())
        return OwnSwitches(switch_records.in_time_order(collected), counts, self._images.thread_names, notes)

    def _told(self, records: Iterable[PerfRecord]) -> Iterator[ImageEvent]:
        """Of mappings and forks, by the watch or else by the session."""
        yield from self._watch.take()
        if self._watch.missed:
            own = (image_event(record, self._clock.tsc) for record in records)
            yield from (event for event in own if event is not None)

    def _take(self, record: PerfRecord) -> SwitchRecord | None:
        """Counts a record; the switch record that it is."""
        counted = self._counted[record.cpu]
        if record.kind == Record.SWITCH and record.pid != NOBODY:
            return self._switch(record, record.pid, record.tid, arrives=not record.misc & perf.SWITCH_OUT)
        if record.kind == Record.EXIT:
            # Of its departure its events tell nothing any more.
            pid, _, tid = _EXIT.unpack_from(record.body)
            return self._switch(record, pid, tid, arrives=False)
        if record.kind == Record.AUX:
            flags = _AUX.unpack_from(record.body)[2]
            counted["aux_records"] += 1
            counted["truncated"] += bool(flags & perf.AUX_TRUNCATED)
            counted["partial"] += bool(flags & perf.AUX_PARTIAL)
        elif record.kind == Record.LOST:
            counted["lost_records"] += lost(record)
            if self._watch.missed:
                self._images.missed(NO_ROOM)
        return None

    def _switch(self, record: PerfRecord, pid: int, tid: int, *, arrives: bool) -> SwitchRecord:
        tsc = self._clock.tsc(record.time)
        self._stays.setdefault(record.cpu, [tsc, tsc])[1] = tsc
        self._counted[record.cpu]["arrivals"] += arrives
        return SwitchRecord(tsc, record.cpu, pid, tid, int(arrives))

    def _first_tsc(self, core: int) -> int:
        arrived = self._stays.get(core, [0])[0]
        if not self._session.overwrites(core):
            return arrived
        # Of two stretches the first may be as short as a byte.
        return begins_at(b"".join(itertools.islice(self._session.packets(core), 2)), arrived)

    def _full(self, core: int, size: int) -> bool:
        # The driver does not always say so (pt_handle_status: where the unit's pointer has gone on).
        stopped = self._session.written(core) == size and not self._session.overwrites(core)
        return self._counted[core]["truncated"] > 0 or stopped

    def _now(self) -> int:
        return self._clock.now()[0]
