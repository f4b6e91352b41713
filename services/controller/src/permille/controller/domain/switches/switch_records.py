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
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain, starmap
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

RECORD = struct.Struct("<QIIII")
STAMPED = struct.Struct("<Q16s")
IN, OUT = 1, 0
# Of a file, in memory at once: some 160 bytes a record. A session may have ten millions of them.
PIECE_BYTES = RECORD.size << 14
_TIME = itemgetter(0)
_NEVER = 1 << 64


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

    @property
    def ns_per_tick(self) -> float:
        """Needs tsc1 > tsc0."""
        return (self.ns1 - self.ns0) / (self.tsc1 - self.tsc0)

    def monotonic(self) -> Anchors:
        """Of unix ns, those of CLOCK_MONOTONIC, as far as nobody has set the wall clock since."""
        ahead = time.time_ns() - time.monotonic_ns()
        return replace(self, ns0=self.ns0 - ahead, ns1=self.ns1 - ahead)

    def tsc_at(self, ns: int) -> int:
        """The TSC at a moment, on the line through both anchors; needs ns1 > ns0."""
        return self.tsc0 + (ns - self.ns0) * (self.tsc1 - self.tsc0) // (self.ns1 - self.ns0)


def parse(data: bytes) -> list[SwitchRecord]:
    """The records of a file; a torn last one, left by a recorder that was killed, is ignored."""
    whole = len(data) - len(data) % RECORD.size
    return [SwitchRecord._make(fields) for fields in RECORD.iter_unpack(data[:whole])]


def pack(records: Iterable[SwitchRecord]) -> bytes:
    return b"".join(RECORD.pack(*record) for record in records)


def read(file: Path) -> Iterator[SwitchRecord]:
    """Those of a file, as they stand there."""
    return records_of(pieces(file))


def records_of(pieces: Iterable[bytes]) -> Iterator[SwitchRecord]:
    return chain.from_iterable(map(parse, pieces))


def in_time_order(file: Path) -> Iterator[bytes]:
    """All records of a file that is as the recorder left it, sorted, in pieces; those of one time stay in their order.

    The kernel hands them over every few ms, in order core by core. So hardly more than a piece waits until it is known
    that nothing that follows is older; whatever stood in the file would come out sorted, if need be in one piece.
    """
    oldest = [min(map(_TIME, STAMPED.iter_unpack(piece))) for piece in pieces(file)]
    # By piece: of all that follow, the oldest.
    following = [*accumulate(reversed([*oldest[1:], _NEVER]), min)][::-1]
    waiting: list[tuple[int, bytes]] = []
    for piece, limit in zip(pieces(file), following, strict=False):
        waiting.extend(STAMPED.iter_unpack(piece))
        waiting.sort(key=_TIME)
        sure = bisect_right(waiting, limit, key=_TIME)
        yield b"".join(starmap(STAMPED.pack, waiting[:sure]))
        del waiting[:sure]


def to_tsc(ordered: Iterable[bytes], monotonic: Anchors) -> Iterator[bytes]:
    """Records, piece by piece, stamped with the TSC; those from before TSC 0 are left out."""
    tsc_at, stamped = monotonic.tsc_at, STAMPED.pack
    for piece in ordered:
        yield b"".join(stamped(tsc, rest) for time, rest in STAMPED.iter_unpack(piece) if (tsc := tsc_at(time)) >= 0)


def count(file: Path) -> int:
    return file.stat().st_size // RECORD.size if file.exists() else 0


def pieces(file: Path) -> Iterator[bytes]:
    """The whole records of a file; none of one that is not there, and no torn last one."""
    if not file.exists():
        return
    with file.open("rb") as opened:
        while piece := opened.read(PIECE_BYTES):
            if whole := len(piece) - len(piece) % RECORD.size:
                yield piece[:whole]
