"""What earlier sessions of the same binary wrote, and what that says about the next one.

A session reports, for each core, how long the target ran there while tracing was on and how many bytes that wrote. The
rate of a session is the bytes of all cores over their run time. Sessions are folded with an exponentially weighted mean
(weight `NEWEST` for the newest), so that a new release of a binary with the same name and a changed load both count
soon; the spread is the mean deviation of cores and sessions from it, as a part of it, folded alike.

A buffer that was full says only that the rate was at least so high: such cores raise a measured rate and never lower
it. Alone they measure none: the rate of a binary that is known by nothing else stays an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NEWEST = 0.3
# Less run time than this says more about the packets at the start of a trace than about the load.
SHORTEST_RUN_MS = 5.0
NARROWEST, WIDEST = 0.1, 1.0
# Of a binary that nobody has traced yet.
UNKNOWN_SPREAD = 0.5


@dataclass(frozen=True)
class Rate:
    """Packet bytes per second that a core runs the target, and how far cores and sessions are from it (a part of it).

    `sessions`: how many it was learned from; 0 for an assumed one.
    """

    bytes_per_busy_second: float
    spread: float = UNKNOWN_SPREAD
    sessions: int = 0


@dataclass(frozen=True)
class CoreObservation:
    """One core of a finished session: run time of the target, bytes written, whether the buffer was full.

    `run_ms` of a full one: while it had room, or, where only that is known, the whole time; its rate is too low then.
    """

    core: int
    run_ms: float
    size_bytes: int
    full: bool = False

    @property
    def rate(self) -> float:
        return self.size_bytes / self.run_ms * 1000


def learn(known: Rate | None, session: Sequence[CoreObservation]) -> Rate | None:
    """What is known after one more session; unchanged when that says nothing, or only how high an assumed rate is at
    least."""
    telling = [core for core in session if core.run_ms >= SHORTEST_RUN_MS]
    exact = [core for core in telling if not core.full]
    full = [core for core in telling if core.full]
    measured = known if known is not None and known.sessions else None
    learned = folded(measured, exact) if exact else measured
    if learned is None or not telling:
        return known
    at_least = mean_rate(full) if full else 0.0
    sessions = 1 + (measured.sessions if measured else 0)
    return Rate(max(at_least, learned.bytes_per_busy_second), learned.spread, sessions)


def folded(measured: Rate | None, exact: Sequence[CoreObservation]) -> Rate:
    """The first measured rate holds as it is."""
    rate = mean_rate(exact)
    if measured is None:
        return Rate(rate, clamped(deviation(exact, rate)))
    mean = (1 - NEWEST) * measured.bytes_per_busy_second + NEWEST * rate
    return Rate(mean, clamped((1 - NEWEST) * measured.spread + NEWEST * deviation(exact, mean)))


def mean_rate(cores: Sequence[CoreObservation]) -> float:
    return sum(core.size_bytes for core in cores) / math.fsum(core.run_ms for core in cores) * 1000


def deviation(cores: Sequence[CoreObservation], mean: float) -> float:
    """Mean deviation from a rate, weighted by run time, as a part of it."""
    if not mean:
        return 0.0
    run_ms = math.fsum(core.run_ms for core in cores)
    return math.fsum(core.run_ms * abs(core.rate - mean) for core in cores) / run_ms / mean


def clamped(spread: float) -> float:
    return min(WIDEST, max(NARROWEST, spread))
