"""What a tracing back end is to the controller: how to begin a recording, and what it left.

A session is one recording or several: one for each process where processes record themselves (vpt), one for all of them
where cores record (kmod).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from permille.controller.domain.file_stamp import FileStamp
from permille.controller.domain.progress import BufferProgress
from permille.controller.domain.session import TraceOptions
from permille.controller.domain.switches.switch_recorder import SwitchCounts
from permille.controller.domain.switches.switch_records import Anchors
from permille.controller.domain.targets.resolution import NO_GROUP, Group


@dataclass(frozen=True)
class RecordableProcess:
    """A process that could be recorded now; `session` is the id of the one recording it, or "" """

    pid: int
    name: str
    command_line: tuple[str, ...]
    threads: int
    session: str


@dataclass(frozen=True)
class ThreadBuffers:
    """Sizes in bytes: by process and thread, and of each of `reserve` more for threads that a process has later."""

    sizes: Mapping[int, Mapping[int, int]]
    reserve: int
    reserve_buffer_bytes: int


@dataclass(frozen=True)
class CoreBuffers:
    """Sizes in bytes, by core."""

    sizes: Mapping[int, int]


@dataclass(frozen=True)
class RecordingConfig:
    """What is to be recorded."""

    session_id: str
    pids: tuple[int, ...]
    period_ms: int
    options: TraceOptions
    buffers: ThreadBuffers | CoreBuffers
    # Whose processes they are: where cores record, those that join it are recorded too.
    group: Group = NO_GROUP


@dataclass(frozen=True)
class PtModel:
    """The processor that the packets are from; fields of CPUID and MSR_PLATFORM_INFO (Intel SDM)."""

    family: int
    model: int
    stepping: int
    tsc_ctc_ratio: tuple[int, int]
    nominal_ratio: int


@dataclass(frozen=True)
class Stream:
    """The packets of one thread; `epochs` says from which offset on which image was executed.

    Or those of a core, where `core` is not -1: of whichever threads ran there, which the switch records tell.
    """

    index: int
    tid: int
    thread_name: str
    size_bytes: int
    buffer_bytes: int
    full: bool
    lost_bytes: int
    lost_blocks: int
    first_tsc: int
    last_tsc: int
    epochs: tuple[tuple[int, int], ...]
    core: int = -1
    # What the back end counted for whoever wants to know what tracing cost.
    counters: Mapping[str, int] = field(default_factory=dict)
    # Of a snapshot: what was written first is not there any more.
    overwritten: bool = False


@dataclass(frozen=True)
class ImageChange:
    """One change of what is mapped: event `map`, `unmap` or `code`; `code` has the bytes, of a `map` an ELF file.

    `build_id` and `stamp`: of the file that was mapped, as far as they are known.
    """

    epoch: int
    tsc: int
    event: str
    address: int
    size_bytes: int
    offset: int = 0
    path: str = ""
    build_id: str = ""
    code: bytes = b""
    stamp: FileStamp | None = None


@dataclass(frozen=True)
class ProcessChanges:
    """Those of a process, in the order of their epochs. `roots`: processes in whose root its files are, itself before
    those that may be there when it is gone."""

    pid: int
    roots: Sequence[int]
    changes: Iterable[ImageChange]


@dataclass(frozen=True)
class OwnSwitches:
    """Switch records of the back end's own, stamped with the TSC, in time order, and what each thread was called.

    `records`: in pieces, to be read once. `notes`: what else the back end knows to be missing, for people.
    """

    records: Iterable[bytes]
    counts: SwitchCounts
    thread_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def counters_of(streams: Iterable[Stream]) -> dict[str, int]:
    """Over all streams; of what is a maximum already (`…_max`), the largest."""
    total: dict[str, int] = {}
    for stream in streams:
        for name, value in stream.counters.items():
            before = total.get(name, 0)
            total[name] = max(before, value) if name.endswith("_max") else before + value
    return total


class Recording(Protocol):
    """A running or finished session, or one process's part of it."""

    @property
    def pids(self) -> Sequence[int]:
        """The processes that were recorded, those that were followed too."""
        ...

    def finished(self) -> bool:
        """Whether nothing more will be written: it ended by itself, or the processes are gone."""
        ...

    def exited(self) -> bool:
        """Whether the recording ended because all its processes did."""
        ...

    @property
    def pause_s(self) -> float:
        """How long it may be left alone while it records."""
        ...

    def collect(self, switches: Path) -> None:
        """Called every `pause_s` while cores record, and once afterwards: takes what would not be there for long.

        Switch records of its own are appended to the file.
        """
        ...

    def progress(self) -> Sequence[BufferProgress]:
        """How far each buffer is, while it records and when it has finished."""
        ...

    def stop(self) -> None:
        """Asks for the end before the period is over; does nothing when it is over."""
        ...

    def release(self) -> None:
        """The processes can be recorded again; what was left is gone. Only after it has finished."""
        ...

    def model(self) -> PtModel: ...

    def realtime(self) -> Anchors:
        """TSC and unix ns at the begin and the end."""
        ...

    def monotonic(self) -> Anchors:
        """TSC and CLOCK_MONOTONIC ns at the begin and the end."""
        ...

    def streams(self) -> Sequence[Stream]:
        """Those that something was written to."""
        ...

    def packets(self, stream: Stream) -> Iterator[bytes]:
        """The bytes of a stream, in pieces."""
        ...

    def images(self) -> Iterator[ProcessChanges]:
        """What is mapped, and how it changed."""
        ...

    @property
    def unbuffered_threads(self) -> int:
        """Those that began while it recorded and found no buffer."""
        ...

    @property
    def cut_off_threads(self) -> int:
        """Those that did not come to write their last packets."""
        ...

    def own_switches(self, collected: Path) -> OwnSwitches | None:
        """Out of what `collect` wrote. None where somebody else has to record them."""
        ...


class Backend(Protocol):
    """A way to record processes of this machine."""

    @property
    def name(self) -> str:
        """As in the API, in small letters."""
        ...

    @property
    def by_core(self) -> bool:
        """Whether cores record: CoreBuffers, switch records of its own. Else threads do: ThreadBuffers."""
        ...

    @property
    def joins(self) -> bool:
        """Whether who is in the group, or joins it while it is recorded, is recorded too."""
        ...

    @property
    def snapshots(self) -> bool:
        """Whether it can keep what was written last, where a buffer is full, in place of what was written first."""
        ...

    def require(self) -> None:
        """Raises NotOnThisMachine."""
        ...

    def processes(self) -> Sequence[RecordableProcess]:
        """Those that were made ready for this back end; none where no process needs to be."""
        ...

    def process(self, pid: int) -> RecordableProcess | None:
        """A process that this back end could record now."""
        ...

    def begin(self, config: RecordingConfig) -> Sequence[Recording]:
        """Begins now, or raises and leaves nothing: NotOnThisMachine, NotFound, PermissionDenied,
        FailedPrecondition (ALREADY_TRACED, NOT_RECORDABLE, RECORDER_REFUSED), ResourceExhausted."""
        ...

    def find(self, pids: Sequence[int], session_id: str) -> Sequence[Recording]:
        """What is left of a session that an earlier controller began, also when the processes are gone by now."""
        ...

    def free_bytes(self) -> int:
        """Memory that trace buffers can still have."""
        ...

    def collect_garbage(self, sessions: Collection[str]) -> None:
        """Removes what processes left that are gone, except the data of these sessions, and young data of others."""
        ...
