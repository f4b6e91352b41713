"""Buffer plans made and judged on a schedule: what each would have kept of the instructions that the target executed.

Sessions follow each other through the schedule. A plan sees what lies before its session: the history of the target's
switches, how busy each core was with others, where the threads are. Then the target writes packets at a steady rate on
whatever core it has, and a core's tracing stops when its buffer is full. Instructions are counted in run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from allocator.schedule import LastCores, Schedule
from permille.allocator.domain.core_use import MAX_BUFFER_BYTES, MIN_BUFFER_BYTES, CoreUse, CoreWish
from permille.allocator.domain.coreset import plan_cores
from permille.allocator.domain.learned import Rate
from permille.allocator.domain.pages import pages_down
from permille.controller.domain.node_use.run_history import Run, shares_by_slice

SLICE_MS = 100
PERIOD_MS = 500
HISTORY_MS = 1000
# Some hundred MB a second and core is what Linux's perf-intel-pt(1) and Intel name; here it is exact.
RATE = Rate(256 << 20, spread=0.1)
NS_PER_MS = 1_000_000

Planner = Callable[[CoreWish], dict[int, int]]


@dataclass(frozen=True)
class Session:
    """What the planner is told, and what the target then did: ms on each core."""

    wish: CoreWish
    ran_ms: dict[int, float]


def sessions(schedule: Schedule, allowed: frozenset[int]) -> Iterator[Session]:
    """Those in which the target ran at all; `allowed` are the cores that it may run on."""
    slices = (schedule.end - schedule.begin) // (SLICE_MS * NS_PER_MS)
    own = slice_shares(schedule, slices, target=True)
    others = slice_shares(schedule, slices, target=False)
    last = LastCores(schedule)
    before, period = HISTORY_MS // SLICE_MS, PERIOD_MS // SLICE_MS
    for now in range(before, slices - period + 1, period):
        ran = {core: math.fsum(own[core][now : now + period]) * SLICE_MS for core in range(schedule.cores)}
        if not any(ran.values()):
            continue
        threads = last.at(schedule.begin + now * SLICE_MS * NS_PER_MS)
        current = set(threads.values())
        cores = [
            CoreUse(core, mean(others[core][now - before : now]), own[core][now - before : now], core in current)
            for core in sorted(allowed)
        ]
        wish = CoreWish(
            cores=cores,
            online=schedule.cores,
            period_ms=PERIOD_MS,
            rate=RATE,
            threads=max(1, len(threads)),
            slice_ms=SLICE_MS,
            seed=now,
        )
        yield Session(wish, ran)


def slice_shares(schedule: Schedule, slices: int, *, target: bool) -> list[tuple[float, ...]]:
    runs = (
        Run(one.core, one.tid, one.begin, one.end)
        for one in schedule.stretches
        if (one.tid in schedule.target) is target
    )
    shares = shares_by_slice(runs, schedule.begin, slices, SLICE_MS * NS_PER_MS)
    return [shares.get(core, (0.0,) * slices) for core in range(schedule.cores)]


def mean(shares: tuple[float, ...]) -> float:
    return min(1.0, math.fsum(shares) / len(shares))


def mean_bytes(of: list[Session]) -> int:
    """What the target writes in a session on average."""
    return int(math.fsum(math.fsum(one.ran_ms.values()) for one in of) / len(of) * RATE.bytes_per_busy_second / 1000)


def with_budget(of: list[Session], budget_bytes: int) -> list[Session]:
    return [replace(one, wish=replace(one.wish, budget_bytes=budget_bytes)) for one in of]


def captured(session: Session, buffers: dict[int, int]) -> float:
    """Run time whose packets were kept, in ms."""
    per_ms = RATE.bytes_per_busy_second / 1000
    return math.fsum(min(ran, buffers.get(core, 0) / per_ms) for core, ran in session.ran_ms.items())


def captured_shares(of: list[Session], planners: dict[str, Planner]) -> dict[str, float]:
    """By planner, the share of everything executed in the sessions that was kept."""
    executed = math.fsum(math.fsum(session.ran_ms.values()) for session in of)
    return {
        name: math.fsum(captured(session, plan(session.wish)) for session in of) / executed
        for name, plan in planners.items()
    }


def coreset(wish: CoreWish) -> dict[int, int]:
    """Ours."""
    plan = plan_cores(wish)
    assert plan.total_bytes <= wish.budget_bytes
    return plan.buffers


def equal_split(wish: CoreWish) -> dict[int, int]:
    """The same on each of the cores where the target may run: affinity and cpuset, all of the machine without any."""
    return equally([use.core for use in wish.cores], wish)


def used_lately(wish: CoreWish) -> dict[int, int]:
    """The same on each of the cores where the target is, or was during its history: what one would write who knows."""
    here = [use.core for use in wish.cores if use.current or any(use.runs)]
    return equally(here or [use.core for use in wish.cores], wish)


def whole_machine(wish: CoreWish) -> dict[int, int]:
    """The same on every core that there is."""
    return equally(list(range(wish.online)), wish)


def equally(cores: list[int], wish: CoreWish) -> dict[int, int]:
    traced = cores[: wish.budget_bytes // MIN_BUFFER_BYTES]
    return dict.fromkeys(traced, min(MAX_BUFFER_BYTES, pages_down(wish.budget_bytes // len(traced))))


PLANNERS: dict[str, Planner] = {
    "coreset": coreset,
    "equal split": equal_split,
    "whole machine": whole_machine,
    "cores used lately": used_lately,
}
