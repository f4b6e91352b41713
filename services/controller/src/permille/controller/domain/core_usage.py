"""On which cores processes may run, and how much of each they use, from /proc and sched_getaffinity(2)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain import thread_usage

ONLINE = Path("/sys/devices/system/cpu/online")
PROC = Path("/proc")


@dataclass(frozen=True)
class Look:
    """One moment: the cores allowed, and of each thread its core and its CPU time in ns."""

    allowed: frozenset[int]
    threads: Mapping[int, tuple[int, int]]


def look(pids: Sequence[int]) -> Look:
    """A process that is gone, or of which nothing is told, may run everywhere."""
    online = cores_of(ONLINE.read_text())
    allowed: set[int] = set()
    threads: dict[int, tuple[int, int]] = {}
    for pid in pids:
        for tid, used in thread_usage.cpu_ns(pid).items():
            try:
                allowed |= os.sched_getaffinity(tid)
                threads[tid] = (last_core((PROC / str(pid) / "task" / str(tid) / "stat").read_text()), used)
            except (OSError, ValueError, IndexError):
                continue
    return Look(frozenset(allowed & online or online), threads)


def between(before: Look, after: Look, elapsed_ns: int) -> dict[int, float]:
    """The share of each allowed core's time, 0 to 1.

    What a thread used is its last core's; one that was born meanwhile began at 0.
    """
    shares = dict.fromkeys(after.allowed, 0.0)
    for tid, (core, used) in after.threads.items():
        if core in shares:
            _, earlier = before.threads.get(tid, (core, 0))
            shares[core] += max(0.0, (used - earlier) / elapsed_ns)
    return {core: min(1.0, share) for core, share in shares.items()}


def last_core(stat: str) -> int:
    """Field 39 of /proc/<pid>/task/<tid>/stat (proc_pid_stat(5)); the name in field 2 may hold anything."""
    return int(stat[stat.rindex(")") + 2 :].split()[36])


def cores_of(text: str) -> set[int]:
    """A list as the kernel writes it: `0-3,5`."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores
