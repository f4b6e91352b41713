"""How much of a core each thread of a process uses, from /proc/<pid>/task/*."""

from __future__ import annotations

import os
from pathlib import Path

NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def tasks_of(pid: int, proc: Path = PROC) -> list[Path]:
    """The folder of each thread; a process that is gone has none."""
    try:
        return list((proc / str(pid) / "task").iterdir())
    except OSError:
        return []


def cpu_ns(pid: int, proc: Path = PROC) -> dict[int, int]:
    """CPU time of every thread in ns; threads that end meanwhile are left out, a process that is gone has none."""
    used: dict[int, int] = {}
    for task in tasks_of(pid, proc):
        try:
            used[int(task.name)] = thread_cpu_ns(task)
        except (OSError, ValueError):
            continue
    return used


def thread_cpu_ns(task: Path) -> int:
    """schedstat counts in ns but need not be there; stat always is, in clock ticks (proc_pid_stat(5))."""
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (OSError, IndexError):
        return parse_stat(stat_of(task)) * NS_PER_TICK


def stat_of(folder: Path) -> str:
    """What proc_pid_stat(5) has; the name in it is what the program wrote, which need not be Unicode."""
    return (folder / "stat").read_text(errors="replace")


def parse_stat(stat: str) -> int:
    """utime + stime in ticks, fields 14 and 15; the name in field 2 may hold blanks and parentheses."""
    after_name = stat[stat.rindex(")") + 2 :].split()
    return int(after_name[11]) + int(after_name[12])


def shares(before: dict[int, int], after: dict[int, int], elapsed_ns: int) -> dict[int, float]:
    """Share of one core's time, 0 to 1, of every thread that is still there; a thread born meanwhile began at 0."""
    return {tid: min(1.0, max(0.0, (used - before.get(tid, 0)) / elapsed_ns)) for tid, used in after.items()}
