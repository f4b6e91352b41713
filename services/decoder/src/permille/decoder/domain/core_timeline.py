"""On which core a thread was, from its switch records."""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

_RECORD = struct.Struct("<QIIII")
_IN = 1
UNKNOWN = -1


@dataclass(frozen=True)
class CoreTimeline:
    """`cores[i]` holds from `times[i - 1]` up to `times[i]` (TSC), the first from ever, the last for ever."""

    times: tuple[int, ...] = ()
    cores: tuple[int, ...] = (UNKNOWN,)

    @cached_property
    def buffers(self) -> tuple[array[int], array[int]]:
        """From which time on which core holds, as ptcore takes it, made once for all calls of the thread."""
        return array("Q", (0, *self.times)), array("i", self.cores)

    @cached_property
    def stays(self) -> CoreTimeline:
        """The same where it is on a core until it comes to another one, and before all on the first."""
        times, cores = zip(
            *((at, core) for at, core in zip((0, *self.times), self.cores, strict=True) if core >= 0), strict=True
        )
        return CoreTimeline(times[1:], cores)


def core_timelines(records: bytes) -> dict[int, CoreTimeline]:
    """The timeline of each thread, by tid, from 24-byte records (tsc, cpu, pid, tid, 1 in or 0 out) in time order.

    A thread that leaves a core without having been seen to arrive was there from the beginning. Bytes behind the last
    whole record are ignored.
    """
    whole = len(records) - len(records) % _RECORD.size
    times: dict[int, list[int]] = defaultdict(list)
    cores: dict[int, list[int]] = {}
    for tsc, cpu, _, tid, operation in _RECORD.iter_unpack(memoryview(records)[:whole]):
        known = cores.setdefault(tid, [UNKNOWN if operation == _IN else cpu])
        times[tid].append(tsc)
        known.append(cpu if operation == _IN else UNKNOWN)
    return {tid: CoreTimeline(tuple(times[tid]), tuple(cores[tid])) for tid in cores}
