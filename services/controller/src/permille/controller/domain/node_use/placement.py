"""Where a process's threads may run and where they are, from affinity and /proc/PID/task (proc_pid_stat(5))."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain.thread_usage import stat_of

PROC = Path("/proc")
SYSTEM = Path("/sys/devices/system/cpu")
PROCESSOR = 39
NAME_FIELDS = 2


@dataclass(frozen=True)
class Placement:
    """`allowed`: cores that some thread may run on; `last`: by tid, the core where it is, or was when it last ran."""

    allowed: frozenset[int]
    last: dict[int, int]


def placement(pid: int, proc: Path = PROC) -> Placement:
    """Threads that end meanwhile are left out. Raises ProcessLookupError when there is no such process."""
    allowed: set[int] = set()
    last: dict[int, int] = {}
    try:
        threads = [int(entry.name) for entry in (proc / str(pid) / "task").iterdir()]
    except OSError:
        raise ProcessLookupError(f"no process {pid}") from None
    for tid in threads:
        try:
            last[tid] = last_core(stat_of(proc / str(pid) / "task" / str(tid)))
            allowed |= os.sched_getaffinity(tid)
        except (FileNotFoundError, ProcessLookupError):
            last.pop(tid, None)
    return Placement(frozenset(allowed), last)


def last_core(stat: str) -> int:
    """Field 39; the name in field 2 may hold blanks and parentheses."""
    return int(stat[stat.rindex(")") + 2 :].split()[PROCESSOR - NAME_FIELDS - 1])


def last_level_caches(system: Path = SYSTEM) -> dict[int, int]:
    """By core, the smallest core that shares its last-level cache; a core whose caches are hidden is alone."""
    caches: dict[int, int] = {}
    for folder in system.glob("cpu[0-9]*"):
        core = int(folder.name[3:])
        levels = sorted((folder / "cache").glob("index[0-9]*/shared_cpu_list"), key=lambda path: path.parent.name)
        shared = levels[-1].read_text().strip() if levels else str(core)
        caches[core] = int(shared.replace("-", ",").split(",")[0])
    return caches
