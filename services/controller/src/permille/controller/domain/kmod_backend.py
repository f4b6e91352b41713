"""The back end kmod: the kernel module drives the processor's trace unit, one buffer for each core."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from permille.controller.domain import kmod_layout as kmod
from permille.controller.domain import processes
from permille.controller.domain.image_watch import ImageWatch
from permille.controller.domain.kmod_device import BACKEND, KmodDevice
from permille.controller.domain.kmod_layout import End, Flags, Unit
from permille.controller.domain.node_use import cpu_list
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.pt_model import EMULATED, processor
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
from permille.controller.domain.switches.switch_records import Anchors
from permille.controller.domain.target_images import TargetImages
from permille.controller.domain.targets.group_members import GroupMembers
from permille.mesh.errors import FailedPrecondition, NotFound

# They are taken out every 10 ms: more than six million switches a second find room.
SWITCH_RECORDS = 1 << 16
COUNTERS = (
    *("operations_on", "operations_off", "retargets", "arrivals"),
    *("records", "records_dropped", "hook_calls", "hook_ticks", "hook_ticks_max"),
)
# Ends of a core's part before those of the others.
_ENDED_EARLY = {End.OFFLINE: "went offline", End.SLEEP: "slept", End.FAULT: "refused an access to its trace unit"}
_ERROR = "met an error of its trace unit and recorded nothing more (IA32_RTIT_STATUS.Error)"
_RECORD = ctypes.sizeof(kmod.Switch)
_PID = struct.Struct("<I")


class KmodBackend:
    """Any process of this machine can be recorded, as long as no session records its cores."""

    name = BACKEND
    by_core = True
    joins = True
    snapshots = False

    def __init__(self, open_device: Callable[[], KmodDevice] = KmodDevice) -> None:
        self._open = open_device

    def require(self) -> None:
        device = self._open()
        try:
            offered(device.info())
        finally:
            device.close()

    def processes(self) -> list[RecordableProcess]:
        """None needs to be made ready."""
        return []

    def process(self, pid: int) -> RecordableProcess | None:
        process = processes.describe(pid)
        return process if process is not None and process.command_line else None

    def begin(self, config: RecordingConfig) -> list[KmodRecording]:
        if not isinstance(config.buffers, CoreBuffers):
            raise TypeError("the kernel module records by core")
        with contextlib.ExitStack() as begun:
            device = self._open()
            begun.callback(device.close)
            info = device.info()
            offered(info)
            # Forks are followed from SETUP on.
            watch = ImageWatch(cpu_list.online())
            begun.callback(watch.close)
            cores = [kmod.CorePlan(cpu, SWITCH_RECORDS, size) for cpu, size in sorted(config.buffers.sizes.items())]
            device.set_up(setup_of(config), cores, config.pids)
            model = EMULATED if info.backend == Unit.EMULATED else processor()
            recording = KmodRecording(device, config.pids, model, GroupMembers(config.group, config.pids), watch)
            begun.pop_all()
        return [recording]

    def find(self, pids: Sequence[int], session_id: str) -> list[KmodRecording]:
        """Nothing: the kernel ended the session when its owner was gone, and took the memory back."""
        return []

    def free_bytes(self) -> int:
        device = self._open()
        try:
            return left_for_buffers(device.info(), os.cpu_count() or 1)
        finally:
            device.close()

    def collect_garbage(self, sessions: Collection[str]) -> None:
        """The kernel does."""


class KmodRecording:
    """One session, from its start."""

    # Its buffers are the cores'.
    unbuffered_threads = 0
    cut_off_threads = 0

    def __init__(
        self,
        device: KmodDevice,
        pids: Sequence[int],
        model: PtModel,
        members: GroupMembers,
        watch: ImageWatch,
    ) -> None:
        self._device = device
        self._model = model
        self._members = members
        self._watch = watch
        self._images = TargetImages(pids, self._now)
        self._last: kmod.SessionStatus | None = None
        self._cores: list[kmod.CoreStatus] = []
        self._images.look()
        device.start()
        self._admit()

    @property
    def pids(self) -> list[int]:
        return self._images.pids

    def finished(self) -> bool:
        if self._last is None:
            if not self._device.ended():
                if self._device.session().processes == 0:
                    self._device.stop()
                return False
            self._last = self._device.session()
            self._cores = self._device.cores()
        return True

    def exited(self) -> bool:
        return self._last is not None and self._last.processes == 0

    @property
    def pause_s(self) -> float:
        """A ring of switch records never has to hold a whole session."""
        return 0.01

    def collect(self, switches: Path) -> None:
        taken = self._device.take_switches()
        if taken:
            with switches.open("ab") as file:
                file.write(taken)
        self._hear()
        for pid in pids_of(taken):
            self._images.follow(pid)
        if self._last is None:
            self._admit()
        self._images.keep_up(ended=self._last is not None)

    def progress(self) -> list[BufferProgress]:
        return [
            BufferProgress(
                size_bytes=core.trace_bytes,
                buffer_bytes=self._device.buffer_bytes(core.index),
                full=bool(core.full),
                stopped=bool(core.full) or core.end in _ENDED_EARLY,
                lost_records=core.records_dropped,
                core=core.cpu,
            )
            for core in self._cores or self._device.cores()
        ]

    def stop(self) -> None:
        self._device.stop()

    def release(self) -> None:
        self._watch.close()
        self._device.close()

    def model(self) -> PtModel:
        return self._model

    def realtime(self) -> Anchors:
        status = self._last or self._device.session()
        return Anchors(status.start_tsc, status.start_ns, status.now_tsc, status.now_ns)

    def monotonic(self) -> Anchors:
        """For jitdumps: its switch records have the TSC."""
        return self.realtime().monotonic()

    def streams(self) -> list[Stream]:
        return [
            Stream(
                index=core.index,
                tid=0,
                thread_name="",
                size_bytes=core.trace_bytes,
                buffer_bytes=self._device.buffer_bytes(core.index),
                full=bool(core.full),
                lost_bytes=0,
                lost_blocks=0,
                first_tsc=core.first_tsc,
                last_tsc=core.last_tsc,
                epochs=(),
                core=core.cpu,
                counters={name: int(getattr(core, name)) for name in COUNTERS},
            )
            for core in self._cores
            if core.trace_bytes
        ]

    def packets(self, stream: Stream) -> Iterator[bytes]:
        return self._device.packets(stream.index, stream.size_bytes)

    def images(self) -> Iterator[ProcessChanges]:
        return self._images.changes()

    def own_switches(self, collected: Path) -> OwnSwitches:
        counts = SwitchCounts(
            count=switch_records.count(collected),
            dropped=sum(core.records_dropped for core in self._cores),
            unseen=self._last.processes_missed if self._last is not None else 0,
            unavailable=ends_told(self._cores),
        )
        notes = tuple(self._images.notes())
        return OwnSwitches(switch_records.in_time_order(collected), counts, self._images.thread_names, notes)

    def _hear(self) -> None:
        """What the kernel tells of mappings and forks."""
        until = self._now()
        self._images.tell(self._watch.take(), until)
        if self._watch.missed:
            self._images.missed(self._watch.missed)

    def _admit(self) -> None:
        """Those that joined the group: what they began with was not forked by a target."""
        for pid in self._members.newcomers():
            # It has ended, or the session has; for whom there is no room the module counts.
            with contextlib.suppress(NotFound, FailedPrecondition):
                self._device.add(pid)
                self._images.follow(pid)

    def _now(self) -> int:
        return int(self._device.session().now_tsc)


def left_for_buffers(info: kmod.Info, cores: int) -> int:
    """Bytes that a plan of so many cores may give to buffers: the module counts the cores' switch records too."""
    rings = cores * kmod.ring_bytes(SWITCH_RECORDS)
    return max(0, int(info.memory_limit_bytes - info.memory_used_bytes) - rings)


def offered(info: kmod.Info) -> None:
    """Raises NotOnThisMachine for a module that was loaded for tests or for comparison."""
    if info.backend == Unit.MODEL:
        raise NotOnThisMachine(
            BACKEND,
            "its module was loaded with model=1, a trace unit for tests",
            "sudo rmmod permille, and load it anew",
        )
    if info.per_switch:
        raise NotOnThisMachine(
            BACKEND,
            "its module was loaded with per_switch=1, which is for comparison only: it stops and starts the trace unit"
            " at every switch of a target",
            "sudo rmmod permille, and load it anew without per_switch",
        )


def setup_of(config: RecordingConfig) -> kmod.Setup:
    """As asked for: what the processor does not offer the module refuses."""
    return kmod.Setup(
        # Without the filter other programs' code would be recorded too.
        flags=flags_of(config.options) | Flags.CR3_FILTER | Flags.FOLLOW_FORK,
        period_ns=config.period_ms * 1_000_000,
        psb_freq=config.options.psb_freq,
        mtc_freq=config.options.mtc_freq if config.options.mtc else 0,
    )


def flags_of(options: TraceOptions) -> Flags:
    flags = Flags.TSC if options.tsc else Flags(0)
    flags |= Flags.MTC if options.mtc else Flags(0)
    flags |= Flags.CYC if options.cyc else Flags(0)
    flags |= Flags(0) if options.return_compression else Flags.NO_RET_COMPRESSION
    return flags


def pids_of(records: bytes) -> set[int]:
    """The processes that records tell of."""
    at = kmod.Switch.pid.offset
    return {_PID.unpack_from(records, begin + at)[0] for begin in range(0, len(records), _RECORD)}


def ends_told(cores: Sequence[kmod.CoreStatus]) -> str:
    """Why cores ended before the period was over, for people; "" where none did."""
    early = (core for core in cores if core.end in _ENDED_EARLY)
    return "; ".join(f"core {core.cpu} {_ERROR if core.error else _ENDED_EARLY[End(core.end)]}" for core in early)
