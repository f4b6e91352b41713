"""What a tracing back end is to the controller: how to begin a recording, and what it left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from permille.controller.domain.session import TraceOptions
from permille.controller.domain.switches.switch_records import Anchors


@dataclass(frozen=True)
class RecordableProcess:
    """A process that could be recorded now; `session` is the id of the one recording it, or "" """

    pid: int
    name: str
    command_line: tuple[str, ...]
    threads: int
    session: str


@dataclass(frozen=True)
class RecordingConfig:
    """One process's part of a session; sizes in bytes, `buffers` by thread, the reserve for threads born later."""

    session_id: str
    period_ms: int
    options: TraceOptions
    buffers: Mapping[int, int]
    reserve: int
    reserve_buffer_bytes: int


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
    """The packets of one thread; `epochs` says from which offset on which image was executed."""

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


@dataclass(frozen=True)
class ImageChange:
    """One change of what is mapped: event `map`, `unmap` or `code`; `code` has the bytes."""

    epoch: int
    tsc: int
    event: str
    address: int
    size_bytes: int
    offset: int = 0
    path: str = ""
    build_id: str = ""
    code: bytes = b""


class ProcessRecording(Protocol):
    """One process's part of a running or finished session."""

    @property
    def pid(self) -> int: ...

    def finished(self) -> bool:
        """Whether nothing more will be written: it ended by itself, or the process is gone."""
        ...

    def exited(self) -> bool:
        """Whether the recording ended because the process did."""
        ...

    def stop(self) -> None:
        """Asks for the end before the period is over; does nothing when it is over."""
        ...

    def release(self) -> None:
        """The process can be recorded again; what it left is gone. Only after it has finished."""
        ...

    def model(self) -> PtModel: ...

    def realtime(self) -> Anchors:
        """TSC and unix ns at the begin and the end."""
        ...

    def monotonic(self) -> Anchors:
        """TSC and CLOCK_MONOTONIC ns at the begin and the end."""
        ...

    def streams(self) -> Sequence[Stream]:
        """Those that a thread wrote to."""
        ...

    def packets(self, stream: Stream) -> Iterator[bytes]:
        """The bytes of a stream, in pieces."""
        ...

    def image_changes(self) -> Iterator[ImageChange]:
        """In the order of their epochs."""
        ...


class Backend(Protocol):
    """A way to record processes of this machine."""

    def processes(self) -> Sequence[RecordableProcess]: ...

    def begin(self, pid: int, config: RecordingConfig) -> ProcessRecording:
        """Begins now, or raises FailedPrecondition (ALREADY_TRACED, NOT_RECORDABLE), NotFound, PermissionDenied."""
        ...

    def find(self, pid: int, session_id: str) -> ProcessRecording | None:
        """The part that a process has in a session begun earlier, also when the process is gone by now."""
        ...

    def free_bytes(self) -> int:
        """Memory that trace buffers can still have."""
        ...

    def collect_garbage(self, sessions: Collection[str]) -> None:
        """Removes what processes left that are gone, except the data of these sessions, and young data of others."""
        ...
