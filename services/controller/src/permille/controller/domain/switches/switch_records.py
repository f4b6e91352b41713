"""Switch records: 24 bytes each, `u64 time, u32 cpu, u32 pid, u32 tid, u32 operation`, little-endian.

The kernel stamps them with CLOCK_MONOTONIC, the archive with the trace's TSC. The recorder read both clocks together
at the begin and the end of the session; in between and shortly before and after, a stamp is on the line through both.

How far a stamp can be off: by what the two readings themselves are off (one clock is read between two readings of the
other, tens of ns, more only if the reader was interrupted each time it tried), and by how much the kernel changed the
rate of CLOCK_MONOTONIC meanwhile: it slews by 500 ppm at most (adjtimex(2)), and a change in mid-session of a part p
moves the middle of a session of duration T by p*T/4 at most, 62 us for 0.5 s at the extreme. Steps of the wall clock do
not matter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

RECORD = struct.Struct("<QIIII")
STAMPED = struct.Struct("<Q16s")
IN, OUT = 1, 0


class SwitchRecord(NamedTuple):
    """One arrival (operation 1) or departure (0) of a thread; time in the unit of its file."""

    time: int
    cpu: int
    pid: int
    tid: int
    operation: int


@dataclass(frozen=True)
class Anchors:
    """Two moments on two clocks: TSC ticks and ns."""

    tsc0: int
    ns0: int
    tsc1: int
    ns1: int

    def tsc_at(self, ns: int) -> int:
        """The TSC at a moment, on the line through both anchors; needs ns1 > ns0."""
        return self.tsc0 + (ns - self.ns0) * (self.tsc1 - self.tsc0) // (self.ns1 - self.ns0)


def parse(data: bytes) -> list[SwitchRecord]:
    """The records of a file; a torn last one, left by a recorder that was killed, is ignored."""
    whole = len(data) - len(data) % RECORD.size
    return [SwitchRecord._make(fields) for fields in RECORD.iter_unpack(data[:whole])]


def pack(records: Iterable[SwitchRecord]) -> bytes:
    return b"".join(RECORD.pack(*record) for record in records)


def to_tsc(data: bytes, monotonic: Anchors) -> bytes:
    """The records of a file in time order, stamped with the TSC; those from before TSC 0 and a torn last one left out.

    As bytes: a busy process has some 10,000 in a session, and as objects they cost more than its packets.
    """
    whole = len(data) - len(data) % RECORD.size
    ordered = sorted(STAMPED.iter_unpack(data[:whole]), key=itemgetter(0))
    tsc_at, stamped = monotonic.tsc_at, STAMPED.pack
    return b"".join(stamped(tsc, rest) for time, rest in ordered if (tsc := tsc_at(time)) >= 0)
