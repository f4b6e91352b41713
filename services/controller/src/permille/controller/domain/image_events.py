"""What the kernel tells of the code that processes have: mappings, forks, and programs that begin, as perf's records.

Layouts: include/uapi/linux/perf_event.h, `enum perf_event_type`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

from permille.controller.domain import perf_layout as perf
from permille.controller.domain.mapping import Mapping
from permille.controller.domain.perf_layout import Record
from permille.controller.domain.perf_records import PerfRecord

_MMAP2 = struct.Struct("<IIQQQIIQQII")
_FORK = struct.Struct("<IIII")
_COMM = struct.Struct("<II")
# Where no file has a name: of nothing, of more than a page, of no memory (kernel/events/core.c, perf_event_mmap_event).
_NAMELESS = "//"


@dataclass(frozen=True)
class Mapped:
    """Code came to a place."""

    tsc: int
    pid: int
    mapping: Mapping


@dataclass(frozen=True)
class Forked:
    """A thread began; that of another process than its parent's has from its beginning what that one has mapped."""

    tsc: int
    pid: int
    tid: int
    parent_pid: int
    parent_tid: int


@dataclass(frozen=True)
class Named:
    """What a thread is called; `program`: because it has begun another one (execve), with nothing mapped."""

    tsc: int
    pid: int
    tid: int
    name: str
    program: bool


ImageEvent = Mapped | Forked | Named


def image_event(record: PerfRecord, tsc: Callable[[int], int]) -> ImageEvent | None:
    """What a record tells; None of others. `tsc`: from perf's ns."""
    if record.kind == Record.MMAP2:
        pid, _, begin, size, offset, _, _, inode, *_ = _MMAP2.unpack_from(record.body)
        name = _text(record.body[_MMAP2.size :]).decode(errors="surrogateescape")
        path = "" if name.startswith(_NAMELESS) else name
        # As /proc has it: where no file is, there is no place in one.
        return Mapped(tsc(record.time), pid, Mapping(begin, begin + size, offset if inode else 0, inode, path))
    if record.kind == Record.FORK:
        pid, parent_pid, tid, parent_tid = _FORK.unpack_from(record.body)
        return Forked(tsc(record.time), pid, tid, parent_pid, parent_tid)
    if record.kind == Record.COMM:
        pid, tid = _COMM.unpack_from(record.body)
        program = bool(record.misc & perf.COMM_EXEC)
        name = _text(record.body[_COMM.size :]).decode(errors="replace")
        return Named(tsc(record.time), pid, tid, name, program)
    return None


def _text(padded: bytes) -> bytes:
    return padded.split(b"\0")[0]


class InOrder:
    """Puts what several cores tell in the order of time: each tells its own in that, and is asked at another moment."""

    def __init__(self) -> None:
        self._held: list[ImageEvent] = []

    def until(self, tsc: int, told: Iterable[ImageEvent]) -> list[ImageEvent]:
        """Those up to a time, of `told` and of what was held back; the cores were asked behind it."""
        events = sorted((*self._held, *told), key=attrgetter("tsc"))
        due = bisect_right(events, tsc, key=attrgetter("tsc"))
        self._held = events[due:]
        return events[:due]
