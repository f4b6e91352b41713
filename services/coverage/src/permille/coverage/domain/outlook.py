"""What a plan will do to its targets, and how much of the unseen its sessions look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MB = 1e6


def expected_slowdown(backend: str, bytes_per_second: float, slowdowns: Mapping[str, float]) -> float | None:
    """By which share of its time a process's work takes longer while it is recorded; None: unknown.

    Writing trace is what recording costs, so it grows with the bytes; `slowdowns`: the share for each MB/s by back end,
    as somebody measured it: nothing recorded tells how fast a program is when it is not recorded.
    """
    for_each_mb = slowdowns.get(backend)
    return None if for_each_mb is None else for_each_mb * bytes_per_second / _MB


def further_sessions(periods_ms: Sequence[int], earlier_ms: Sequence[int]) -> float:
    """Sessions of these periods in sessions as long as the earlier ones were on average."""
    known = [period for period in earlier_ms if period > 0]
    if not known:
        return float(len(periods_ms))
    return sum(periods_ms) * len(known) / sum(known)
