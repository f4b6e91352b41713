"""How busy every core was, from /proc/stat (proc_stat(5))."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
IDLE, IOWAIT = 3, 4
# guest and guest_nice are contained in user and nice.
COUNTED = 8


class CoreTime(NamedTuple):
    """Clock ticks since boot."""

    busy: int
    total: int


def read(proc: Path = PROC) -> dict[int, CoreTime]:
    """By core, those that are online."""
    times = {}
    for line in (proc / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:COUNTED]]
            times[int(name[3:])] = CoreTime(sum(ticks) - ticks[IDLE] - ticks[IOWAIT], sum(ticks))
    return times


def busy_shares(before: dict[int, CoreTime], after: dict[int, CoreTime]) -> dict[int, float]:
    """By core, the busy share between two readings, 0 to 1; none for a core that came meanwhile."""
    return {
        core: min(1.0, max(0.0, (time.busy - before[core].busy) / elapsed))
        for core, time in after.items()
        if core in before and (elapsed := time.total - before[core].total) > 0
    }
