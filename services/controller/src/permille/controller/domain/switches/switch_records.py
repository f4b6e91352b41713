"""Switch records: 24 bytes each, `u64 time, u32 cpu, u32 pid, u32 tid, u32 operation`, little-endian.

The kernel stamps them with CLOCK_MONOTONIC, the archive with the trace's TSC. The way between leads over
CLOCK_REALTIME: the offset of the two clocks is read at the begin and the end of the session, and the recorder's own
anchors tie the TSC to CLOCK_REALTIME.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

RECORD = struct.Struct("<QIIII")
IN, OUT = 1, 0
TRIES = 16


class SwitchRecord(NamedTuple):
    """One arrival (operation 1) or departure (0) of a thread; time in the unit of its file."""

    time: int
    cpu: int
    pid: int
    tid: int
    operation: int


@dataclass(frozen=True)
class ClockOffset:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, in ns, at a moment; `error_ns` bounds the reading's own error."""

    monotonic_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True)
class Anchors:
    """Two moments on both clocks: TSC ticks and unix ns."""

    tsc0: int
    ns0: int
    tsc1: int
    ns1: int

    def tsc_at(self, unix_ns: int) -> int:
        """The TSC at a moment, on the line through both anchors; needs tsc1 > tsc0 and ns1 > ns0."""
        return self.tsc0 + (unix_ns - self.ns0) * (self.tsc1 - self.tsc0) // (self.ns1 - self.ns0)


def read_offset(
    monotonic_ns: Callable[[], int] = time.monotonic_ns, realtime_ns: Callable[[], int] = time.time_ns
) -> ClockOffset:
    """The offset now: CLOCK_REALTIME read between two readings of CLOCK_MONOTONIC, the narrowest of some tries."""
    return min((reading(monotonic_ns, realtime_ns) for _ in range(TRIES)), key=lambda reading: reading.error_ns)


def reading(monotonic_ns: Callable[[], int], realtime_ns: Callable[[], int]) -> ClockOffset:
    before, now, after = monotonic_ns(), realtime_ns(), monotonic_ns()
    middle = (before + after) // 2
    return ClockOffset(middle, now - middle, (after - before + 1) // 2)


def parse(data: bytes) -> list[SwitchRecord]:
    """The records of a file; a torn last one, left by a recorder that was killed, is ignored."""
    whole = len(data) - len(data) % RECORD.size
    return [SwitchRecord._make(fields) for fields in RECORD.iter_unpack(data[:whole])]


def pack(records: Iterable[SwitchRecord]) -> bytes:
    return b"".join(RECORD.pack(*record) for record in records)


def to_tsc(
    records: Iterable[SwitchRecord], anchors: Anchors, begin: ClockOffset, end: ClockOffset
) -> list[SwitchRecord]:
    """The records in time order, stamped with the TSC; those from before TSC 0 are left out."""
    ordered = sorted(records, key=lambda record: record.time)
    stamped = (record._replace(time=anchors.tsc_at(realtime(record.time, begin, end))) for record in ordered)
    return [record for record in stamped if record.time >= 0]


def realtime(monotonic_ns: int, begin: ClockOffset, end: ClockOffset) -> int:
    span = end.monotonic_ns - begin.monotonic_ns
    if span <= 0:
        return monotonic_ns + begin.offset_ns
    drift = end.offset_ns - begin.offset_ns
    return monotonic_ns + begin.offset_ns + drift * (monotonic_ns - begin.monotonic_ns) // span


def error_bound_ns(begin: ClockOffset, end: ClockOffset) -> int:
    """How far a stamp can be off, without the error of the recorder's own anchors.

    The readings' own errors, and all of the change of the offset in between: a clock that was stepped rather than
    slewed is that far from the straight line at worst.
    """
    return max(begin.error_ns, end.error_ns) + abs(end.offset_ns - begin.offset_ns)
