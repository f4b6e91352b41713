"""The back end perf: the kernel's own driver of the processor's trace unit, where no module may be loaded."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil
from permille.controller.domain import perf_layout as perf
from permille.controller.domain import processes
from permille.controller.domain.perf_clock import PerfClock
from permille.controller.domain.perf_events import BACKEND, event_of, open_event, refused
from permille.controller.domain.perf_layout import Record
from permille.controller.domain.perf_newest import begins_at
from permille.controller.domain.perf_records import PerfRecord
from permille.controller.domain.perf_session import PerfSession
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.pt_model import processor
from permille.controller.domain.recording import (
    CoreBuffers,
    ImageChange,
    OwnSwitches,
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
_LOST = struct.Struct("<QQ")
_FORK = struct.Struct("<I")
_COMM = struct.Struct("<II")
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
            session = PerfSession(attr, config.pids, config.buffers.sizes, snapshot=config.options.snapshot)
            begun.callback(session.close)
            recording = PerfRecording(session, clock, config.pids, config.period_ms)
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

    def __init__(self, session: PerfSession, clock: PerfClock, pids: Sequence[int], period_ms: int) -> None:
        self._session = session
        self._clock = clock
        self._images = TargetImages(pids, self._now)
        self._ended: tuple[int, int] | None = None
        self._exited = False
        self._counted: dict[int, Counter[str]] = {core: Counter() for core in session.buffers}
        self._stays: dict[int, list[int]] = {}
        self._images.look()
        self._begun = clock.now()
        self._deadline = time.monotonic() + period_ms / 1000
        session.enable()

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
        taken = list(map(self._take, self._session.take()))
        with switches.open("ab") as file:
            file.write(switch_records.pack(record for record in taken if record is not None))
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

    def images(self) -> Iterator[tuple[int, Iterator[ImageChange]]]:
        return self._images.changes()

    def own_switches(self, collected: Path) -> OwnSwitches:
        partial = [f"core {core}" for core, counted in self._counted.items() if counted["partial"]]
        counts = SwitchCounts(
            count=switch_records.count(collected),
            dropped=sum(counted["lost_records"] for counted in self._counted.values()),
            unseen=0,
            unavailable=f"{', '.join(partial)}: KVM had the trace unit for a time" if partial else "",
        )
        return OwnSwitches(switch_records.in_time_order(collected), counts, self._images.thread_names)

    def _take(self, record: PerfRecord) -> SwitchRecord | None:
        """Counts a record; the switch record that it is."""
        counted = self._counted[record.cpu]
        if record.kind == Record.SWITCH:
            if record.pid == NOBODY:
                return None
            tsc, arrives = self._clock.tsc(record.time), not record.misc & perf.SWITCH_OUT
            self._stays.setdefault(record.cpu, [tsc, tsc])[1] = tsc
            counted["arrivals"] += arrives
            self._images.follow(record.pid)
            return SwitchRecord(tsc, record.cpu, record.pid, record.tid, int(arrives))
        if record.kind == Record.FORK:
            self._images.follow(_FORK.unpack_from(record.body)[0])
        elif record.kind == Record.COMM:
            name = record.body[_COMM.size :].split(b"\0")[0].decode(errors="replace")
            self._images.thread_names[_COMM.unpack_from(record.body)[1]] = name
        elif record.kind == Record.MMAP2:
            self._images.has_news()
        elif record.kind == Record.AUX:
            flags = _AUX.unpack_from(record.body)[2]
            counted["aux_records"] += 1
            counted["truncated"] += bool(flags & perf.AUX_TRUNCATED)
            counted["partial"] += bool(flags & perf.AUX_PARTIAL)
        elif record.kind == Record.LOST:
            counted["lost_records"] += _LOST.unpack_from(record.body)[1]
        return None

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
