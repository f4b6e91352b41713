"""On which core a thread was, from its switch records."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_RECORD = struct.Struct("<QIIII")
_IN = 1
UNKNOWN = -1


@dataclass(frozen=True)
class CoreTimeline:
    """`cores[i]` holds from `times[i - 1]` up to `times[i]` (TSC), the first from ever, the last for ever."""

    times: tuple[int, ...] = ()
    cores: tuple[int, ...] = (UNKNOWN,)

    def throughout(self, first: int, last: int) -> int | None:
        """The core from one time to the other; None when there were several."""
        number = bisect_right(self.times, first)
        return self.cores[number] if number == bisect_right(self.times, last) else None

    def at(self, starts: Sequence[int]) -> array[int]:
        """The core at each of these times, which never go back."""
        result = array("i")
        done = 0
        number = bisect_right(self.times, starts[0]) if len(starts) else 0
        while done < len(starts):
            upto = bisect_left(starts, self.times[number], lo=done) if number < len(self.times) else len(starts)
            result += array("i", (self.cores[number],)) * (upto - done)
            done, number = upto, number + 1
        return result


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
