"""On which core a thread was, from its switch records."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from permille.decoder.domain.switch_records import IN, records

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


def core_timelines(switches: bytes) -> dict[tuple[int, int], CoreTimeline]:
    """The timeline of each thread, by pid and tid.

    A thread that leaves a core without having been seen to arrive was there from the beginning.
    """
    times: dict[tuple[int, int], list[int]] = defaultdict(list)
    cores: dict[tuple[int, int], list[int]] = {}
    for tsc, cpu, pid, tid, operation in records(switches):
        known = cores.setdefault((pid, tid), [UNKNOWN if operation == IN else cpu])
        times[pid, tid].append(tsc)
        known.append(cpu if operation == IN else UNKNOWN)
    return {thread: CoreTimeline(tuple(times[thread]), tuple(cores[thread])) for thread in cores}
