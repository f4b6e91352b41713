"""Where the target will run during the session, as far as its past and the machine's load tell.

For every core i the outlook is a distribution of X_i, the bytes that the target will write there. With T the period,
r the rate, F_i = r * T * min(1, quota) * max(room_i, min(1, weight)) what a core writes that the target never leaves,
three things may happen. A target of less weight than its neighbours has of a core what these leave, or its weight's
part; one of as much or more comes to have it alone, since the balancer takes the others away.

1. *As before*, with weight (1 - b) * (1 - m). Windows as long as the period (at most half of the history) slide over
   the history; one in which the target had the share x of core i stands for x * r * T bytes, give or take d, the rate's
   spread and the share's own: uniform on [1 - d, 1 + d] times that. A window counts half as much as one that is
   `HALF_MS` younger. With weight `POOLED` the core has not its own windows but those of any of the cores that the
   target used, one like the other: a busy machine's balancer exchanges their load within a period or two, so that a
   core's own past says more about whether the target comes there at all than about how long it stays.
2. *A burst*, with weight b, on the current cores: a target that slept starts where it last was; uniform on [0, F_i].
3. *A visit*, besides the others: the scheduler looks for an idle core, first among those that share the last-level
   cache (Linux, kernel/sched/fair.c, select_idle_sibling), so one move meets core i in proportion to
   w_i = room_i * near_i, and N moves with chance 1 - (1 - w_i / sum w) ** N. This is why a core that others use little
   gets the bigger buffer. A visit brings exponentially distributed bytes, F_i * D * m / N in the mean, D being the
   cores that the target keeps busy, one at least.

m is one minus the stickiness: the part of the target's time that stays on its core from one slice of the history to the
next, sum_i min(p_i(t), p_i(t + 1)) averaged over t. N is how many cores it came to per slice, times the slices of a
period. Without a history both are guesses; a target that slept through its history is expected to wake where it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from permille.allocator.domain.core_use import CoreUse, CoreWish

BURST = 0.05
HALF_MS = 200
# Of one period's share of a core from another's: less trusts the history where cores are used much alike.
SHARE_SPREAD = 0.5
# Nobody stays for ever, and a history has an end: pairs of slices imagined beside the real ones.
LEAST_MOVED = 0.02
PRIOR_STAYS = 0.5
PRIOR_NEW = 0.1
UNKNOWN = 0.5
ASLEEP_MOVED = 0.1
# Best on recordings of five loads on a crowded machine: at 0 a plan follows chance, at 1 it ignores what stays.
POOLED = 0.8
# Placement outside of the last-level cache happens at fork, exec and by load balancing only.
FAR = 0.125
# A core that is busy all the time can still be met: whoever keeps it may sleep.
LEAST_ROOM = 0.02


@dataclass(frozen=True)
class Past:
    """What was written in windows of the history: one core's, or one after the other's of all cores used."""

    windows: tuple[float, ...]
    weights: tuple[float, ...]
    spread: float
    _known: dict[float, float] = field(default_factory=dict, compare=False, repr=False)

    def chance_of_more_than(self, size: float) -> float:
        chance = self._known.get(size)
        if chance is None:
            pairs = zip(self.weights, self.windows, strict=True)
            chance = math.fsum(weight * exceeds(size, window, self.spread) for weight, window in pairs)
            self._known[size] = chance
        return chance

    @property
    def mean(self) -> float:
        return math.fsum(weight * window for weight, window in zip(self.weights, self.windows, strict=True))


@dataclass(frozen=True)
class CoreOutlook:
    """What may come to one core: its past and that of all cores used, with the weights of the past and of a burst,
    chance and size of a visit. `pooled` is the weight of the common past."""

    own: Past
    common: Past
    pooled: float
    before: float
    burst: float
    visited: float
    visit_bytes: float
    full_bytes: float

    def chance_of_more_than(self, size: float) -> float:
        """The chance that the core writes more than `size` bytes: what the next byte of a buffer is worth."""
        own, common = self.own.chance_of_more_than(size), self.common.chance_of_more_than(size)
        past = (1 - self.pooled) * own + self.pooled * common
        burst = max(0.0, 1.0 - size / self.full_bytes)
        visit = math.exp(-size / self.visit_bytes) if size < self.full_bytes else 0.0
        return 1 - (1 - self.before * past - self.burst * burst) * (1 - self.visited * visit)

    @property
    def expected_bytes(self) -> float:
        past = (1 - self.pooled) * self.own.mean + self.pooled * self.common.mean
        return self.before * past + self.burst * self.full_bytes / 2


@dataclass(frozen=True)
class Outlook:
    """By core; `moved` is m, `meets` the chance of each core to be met by one move."""

    cores: dict[int, CoreOutlook]
    meets: dict[int, float]
    moved: float


def outlook_of(wish: CoreWish) -> Outlook:
    cores = wish.cores
    moved, burst, visits = habits(wish)
    meets = meeting_chances(cores)
    demand = demand_of(wish)
    whole_core = wish.rate.bytes_per_busy_second * wish.period_ms / 1000
    full = {use.core: max(1.0, whole_core * min(1.0, wish.quota) * attainable(use, wish.weight)) for use in cores}
    length = window_slices(wish)
    weights = recency(max(0, len(cores[0].runs) - length + 1), HALF_MS / wish.slice_ms)
    spread = min(1.0, wish.rate.spread + SHARE_SPREAD)
    pasts = {
        use.core: Past(tuple(share * whole_core for share in windows(use.runs, length)), weights, spread)
        for use in cores
    }
    common = common_past([pasts[use.core] for use in cores if any(use.runs)], spread)
    outlooks = {
        use.core: CoreOutlook(
            own=pasts[use.core],
            common=common,
            pooled=POOLED if any(use.runs) else 0.0,
            before=(1 - burst) * (1 - moved),
            burst=burst if use.current else 0.0,
            visited=1 - (1 - meets[use.core]) ** visits,
            visit_bytes=max(1.0, full[use.core] * min(1.0, demand * moved / visits)),
            full_bytes=full[use.core],
        )
        for use in cores
    }
    return Outlook(outlooks, meets, moved)


def attainable(use: CoreUse, weight: float) -> float:
    """The part of a core's time that the target may have at most."""
    return max(use.room, min(1.0, weight))


def common_past(pasts: Sequence[Past], spread: float) -> Past:
    """Any of them with the same chance."""
    return Past(
        tuple(window for past in pasts for window in past.windows),
        tuple(weight / len(pasts) for past in pasts for weight in past.weights),
        spread,
    )


def habits(wish: CoreWish) -> tuple[float, float, float]:
    """The part that moves, the chance of a burst, and the visits, as the history has them or nobody knows."""
    if not wish.cores[0].runs:
        return UNKNOWN, UNKNOWN, demand_of(wish)
    if not any(any(use.runs) for use in wish.cores):
        return ASLEEP_MOVED, UNKNOWN, ASLEEP_MOVED
    return max(LEAST_MOVED, 1 - stickiness(wish.cores)), BURST, visits_of(wish)


def visits_of(wish: CoreWish) -> float:
    """How many cores the target comes to, in a period, on which it was not the slice before."""
    slices = [
        {index for index, share in enumerate(runs) if share}
        for runs in zip(*(use.runs for use in wish.cores), strict=True)
    ]
    new = sum(len(after - before) for before, after in itertools.pairwise(slices) if before and after)
    pairs = sum(1 for before, after in itertools.pairwise(slices) if before and after)
    return (new + PRIOR_NEW) / (pairs + 1) * max(1.0, wish.period_ms / wish.slice_ms)


def demand_of(wish: CoreWish) -> float:
    """Cores that the target keeps busy at a time: as before, at least one thread's worth, never above the quota."""
    possible = min(wish.quota, wish.threads, len(wish.cores))
    own = math.fsum(use.own for use in wish.cores)
    return min(wish.quota, max(own, min(1.0, possible)))


def stickiness(cores: Sequence[CoreUse]) -> float:
    slices = [
        [run / total for run in runs]
        for runs in zip(*(use.runs for use in cores), strict=True)
        if (total := math.fsum(runs))
    ]
    stayed = [math.fsum(map(min, before, after)) for before, after in itertools.pairwise(slices)]
    return (math.fsum(stayed) + PRIOR_STAYS) / (len(stayed) + 1)


def meeting_chances(cores: Sequence[CoreUse]) -> dict[int, float]:
    caches = {use.cache for use in cores if use.current or any(use.runs)}
    weights = {
        use.core: max(use.room, LEAST_ROOM) * (1.0 if not caches or use.cache in caches else FAR) for use in cores
    }
    total = math.fsum(weights.values())
    return {core: weight / total for core, weight in weights.items()}


def window_slices(wish: CoreWish) -> int:
    """As long as the period, or as half of the history."""
    return max(1, min(round(wish.period_ms / wish.slice_ms), len(wish.cores[0].runs) // 2))


def windows(runs: Sequence[float], length: int) -> list[float]:
    """The mean share in every stretch of so many slices, oldest first."""
    return [math.fsum(runs[start : start + length]) / length for start in range(len(runs) - length + 1)]


def recency(count: int, half: float) -> tuple[float, ...]:
    """Weights that add up to 1, each `half` steps worth half as much as what came later."""
    weights = [0.5 ** ((count - 1 - index) / half) for index in range(count)]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def exceeds(size: float, middle: float, spread: float) -> float:
    """The chance that something uniform on [1 - spread, 1 + spread] * middle is more than size."""
    low, high = (1 - spread) * middle, (1 + spread) * middle
    if size >= high:
        return 0.0
    return 1.0 if size <= low else (high - size) / (high - low)
