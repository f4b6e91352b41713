"""What a target used of every core, from samples of its threads and of /proc/stat; needs no privilege.

Between two samples a thread's time counts for the core where it was at the second one: coarse where it moves more often
than that, which the switch records mend where there are any (run_history.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain.node_use import core_times
from permille.controller.domain.node_use.core_times import CoreTime
from permille.controller.domain.node_use.placement import last_core
from permille.controller.domain.thread_usage import stat_of, tasks_of, thread_cpu_ns

PROC = Path("/proc")


@dataclass(frozen=True)
class UseSample:
    """One moment (CLOCK_MONOTONIC, ns): by tid CPU time in ns and the last core; by core the ticks of everybody."""

    time_ns: int
    threads: Mapping[int, tuple[int, int]]
    cores: Mapping[int, CoreTime]


def sample(pids: Sequence[int], time_ns: int, proc: Path = PROC) -> UseSample:
    """Threads and processes that end meanwhile are left out."""
    threads = {}
    for pid in pids:
        for task in tasks_of(pid, proc):
            try:
                threads[int(task.name)] = (thread_cpu_ns(task), last_core(stat_of(task)))
            except (OSError, ValueError):
                continue
    return UseSample(time_ns, threads, core_times.read(proc))


def own_shares(samples: Sequence[UseSample]) -> dict[int, tuple[float, ...]]:
    """By core, the target's share of every stretch between two samples, oldest first; cores without any are absent."""
    stretches = list(itertools.pairwise(samples))
    shares: dict[int, list[float]] = {}
    for index, (before, after) in enumerate(stretches):
        elapsed_ns = max(1, after.time_ns - before.time_ns)
        for tid, (used, core) in after.threads.items():
            # Whoever was born meanwhile began at 0.
            began = before.threads[tid][0] if tid in before.threads else 0
            if used > began:
                shares.setdefault(core, [0.0] * len(stretches))[index] += (used - began) / elapsed_ns
    return {core: tuple(min(1.0, share) for share in parts) for core, parts in shares.items()}


def others_shares(samples: Sequence[UseSample], own: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """By core, what anybody but the target had of it between the first sample and the last."""
    busy = core_times.busy_shares(dict(samples[0].cores), dict(samples[-1].cores))
    means = {core: math.fsum(parts) / len(parts) for core, parts in own.items() if parts}
    return {core: max(0.0, share - means.get(core, 0.0)) for core, share in busy.items()}
