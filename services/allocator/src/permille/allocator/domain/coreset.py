"""The coreset sampler: which cores are traced, and how much memory each of them gets.

A target that is *bound to a CPU set* gets tracing on exactly the cores of the set, with equal buffers: it has them to
itself. A target with a *CPU share* may be anywhere, and memory on every core would be thin everywhere. It gets

1. its current cores: those where its threads are, or were when they last ran, each with the smallest buffer;
2. others: cores where it ran during its history, and of those where it did not, a sample without replacement, with the
   chance that a move meets them (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006: the
   largest u ** (1 / w)), until what is left out would be met by less than `MISS`, or the sample's smallest buffers take
   `OTHERS_SHARE` of the budget. One is traced when a first buffer there is worth more than the same bytes elsewhere;
3. sizes: grain after grain to the core that would most probably fill it. The expected bytes kept are the sum over cores
   of the integral of P(X_i > s) from 0 to the core's size, concave in each size, so taking the largest P(X_i > s_i)
   first is the best division of what is above the smallest buffers that this outlook allows (outlook.py).

Memory that nothing could fill is not taken. Memory pressure shrinks the budget before anything is planned.
Usage-aware allocation follows EXIST (Wang et al., ASPLOS 2025): little-used cores get the bigger buffers, because the
target more probably runs there uninterrupted. What the target itself takes of a core is not use in this sense.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

from permille.allocator.domain.core_use import Binding, CoreUse, CoreWish, check
from permille.allocator.domain.outlook import CoreOutlook, Outlook, outlook_of
from permille.allocator.domain.pages import MIB, pages_down, pages_up
from permille.mesh.errors import ResourceExhausted

GRAIN = 256 * 1024
MISS = 0.001
STEPS = 8
OTHERS_SHARE = 0.25
# PSI "some" over 10 s, percent: below CALM the whole budget is taken, at HARD a quarter, in between in proportion.
CALM, HARD, UNDER_PRESSURE = 1.0, 20.0, 0.25


@dataclass(frozen=True)
class CorePlan:
    """Sizes in bytes and the reason, by core; the reason for each core that the target may run on but is not traced.

    `total_bytes` never exceeds `budget_bytes`, which is what memory pressure left of the wish's.
    """

    binding: Binding
    buffers: dict[int, int]
    reasons: dict[int, str]
    left_out: dict[int, str]
    budget_bytes: int
    total_bytes: int
    expected_bytes: int


def plan_cores(wish: CoreWish) -> CorePlan:
    """The plan for a wish.

    Raises InvalidArgument for values without a meaning, ResourceExhausted (reason BUDGET_TOO_SMALL, metadata
    `smallest_budget_bytes`) when a CPU set's cores, or one core, cannot have the smallest buffer.
    """
    check(wish)
    binding = wish.binding or binding_of(wish)
    smallest = pages_up(wish.min_buffer_bytes)
    needed = smallest * (len(wish.cores) if binding is Binding.CPU_SET else 1)
    if wish.budget_bytes < needed:
        raise too_small(wish, needed, smallest)
    budget = max(needed, pages_down(int(wish.budget_bytes * affordable(wish.pressure))))
    outlook = outlook_of(wish)
    if binding is Binding.CPU_SET:
        buffers, left_out = equal_buffers(wish, budget, smallest), {}
    else:
        here, others = choose(wish, outlook, budget, smallest)
        buffers = divide(outlook, here, others, budget=budget, smallest=smallest, most=most_useful(wish, smallest))
        left_out = {use.core: why_left_out(use, use.core in others) for use in wish.cores if use.core not in buffers}
    return CorePlan(
        binding=binding,
        buffers=buffers,
        reasons={use.core: why(use, wish, outlook, binding) for use in wish.cores if use.core in buffers},
        left_out=left_out,
        budget_bytes=budget,
        total_bytes=sum(buffers.values()),
        expected_bytes=math.ceil(sum(outlook.cores[core].expected_bytes for core in outlook.cores)),
    )


def binding_of(wish: CoreWish) -> Binding:
    """A set of its own: fewer cores than there are, and the time to use all of them.

    A cpuset alone does not tell. Kubernetes' static CPU manager gives a pod with whole CPUs a cpuset and a quota of the
    same size, and everybody else the cpuset of what is left, which many share; their quota, if any, is smaller.
    """
    fewer = len(wish.cores) < wish.online
    return Binding.CPU_SET if fewer and wish.quota >= len(wish.cores) else Binding.CPU_SHARE


def affordable(pressure: float) -> float:
    """The part of the budget that is taken at a memory pressure."""
    tightness = min(1.0, max(0.0, (pressure - CALM) / (HARD - CALM)))
    return 1 - tightness * (1 - UNDER_PRESSURE)


def most_useful(wish: CoreWish, smallest: int) -> int:
    """What a core writes that the target never leaves, at the upper end of its rate; more would stay empty."""
    fastest = wish.rate.bytes_per_busy_second * (1 + wish.rate.spread) * min(1.0, wish.quota)
    return max(smallest, min(pages_up(math.ceil(fastest * wish.period_ms / 1000)), pages_down(wish.max_buffer_bytes)))


def equal_buffers(wish: CoreWish, budget: int, smallest: int) -> dict[int, int]:
    each = min(pages_down(budget // len(wish.cores)), most_useful(wish, smallest))
    return {use.core: each for use in sorted(wish.cores, key=lambda use: use.core)}


def choose(wish: CoreWish, outlook: Outlook, budget: int, smallest: int) -> tuple[list[int], list[int]]:
    """The current cores, as many as there can be, and who else comes into question."""
    most = budget // smallest
    ran = sorted((use for use in wish.cores if any(use.runs)), key=lambda use: (-use.own, -use.room, use.core))
    current = [use for use in wish.cores if use.current] or ran[:1]
    current.sort(key=lambda use: (-use.own, -use.room, use.core))
    here = [use.core for use in current[:most]]
    known = [use.core for use in ran if use.core not in here]
    others = [use.core for use in wish.cores if not (use.current or any(use.runs))]
    sample = sampled(others, outlook, wish.seed)
    if not here:
        return sample[:1], sample[1:most]
    unplanned = math.fsum(outlook.meets[core] for core in others)
    for core in sample[: int(budget * OTHERS_SHARE) // smallest]:
        if outlook.moved * unplanned < MISS:
            break
        known.append(core)
        unplanned -= outlook.meets[core]
    return here, known


def sampled(others: list[int], outlook: Outlook, seed: int) -> list[int]:
    """In the order of a weighted sample without replacement."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    keys = {core: math.log(1 - chance.random()) / outlook.meets[core] for core in sorted(others)}
    return sorted(keys, key=lambda core: -keys[core])


def divide(
    outlook: Outlook, here: list[int], others: list[int], *, budget: int, smallest: int, most: int
) -> dict[int, int]:
    """Sizes by core; the others are there only when a first buffer was worth its bytes."""
    sizes = dict.fromkeys(here, smallest)
    left = budget - smallest * len(sizes)
    # A buffer begins with the smallest size: what that is worth is its mean.
    heap = [(-worth(outlook.cores[core], smallest), smallest, core) for core in here]
    heap += [(-worth(outlook.cores[core], 0, smallest), 0, core) for core in others]
    heapq.heapify(heap)
    while heap and left:
        value, had, core = heapq.heappop(heap)
        grain = min(GRAIN, left, most - had) if had else smallest
        if not value or not grain or grain > left:
            continue
        sizes[core] = had + grain
        left -= grain
        heapq.heappush(heap, (-worth(outlook.cores[core], had + grain), had + grain, core))
    return dict(sorted(sizes.items()))


def worth(core: CoreOutlook, had: int, lump: int = 0) -> float:
    """The chance that the next byte is filled, or a first buffer's on average; rounded, so that equals are equal."""
    if not lump:
        return round(core.chance_of_more_than(had), 9)
    steps = (had + lump * (step + 0.5) / STEPS for step in range(STEPS))
    return round(math.fsum(core.chance_of_more_than(size) for size in steps) / STEPS, 9)


def why(use: CoreUse, wish: CoreWish, outlook: Outlook, binding: Binding) -> str:
    if binding is Binding.CPU_SET:
        return f"one of the {len(wish.cores)} cores of the target's CPU set: an equal part"
    if use.own:
        seconds = len(use.runs) * wish.slice_ms / 1000
        return f"the target had {use.own:.0%} of it in the last {seconds:g} s, others {use.others:.0%}"
    if use.current:
        return f"a thread of the target is here; others have {use.others:.0%} of it"
    return (
        f"sampled: others have {use.others:.0%} of it, a move of the target ends here in {outlook.meets[use.core]:.1%}"
    )


def why_left_out(use: CoreUse, tried: bool) -> str:
    if use.current:
        return "more cores are current than the budget has smallest buffers for"
    if use.own:
        return f"the target had only {use.own:.1%} of it: a first buffer is worth more as a part of the others"
    if tried:
        return f"sampled, but others have {use.others:.0%} of it: a first buffer is worth more as a part of the others"
    return f"not sampled: others have {use.others:.0%} of it"


def too_small(wish: CoreWish, needed: int, smallest: int) -> ResourceExhausted:
    return ResourceExhausted(
        f"budget_bytes is {wish.budget_bytes}, too small for {needed // smallest} buffers of at least {smallest} bytes",
        reason="BUDGET_TOO_SMALL",
        help=f"set budget_bytes to {needed} ({needed / MIB:g} MiB) or more, or ask for smaller buffers",
        metadata={"smallest_budget_bytes": str(needed), "budget_bytes": str(wish.budget_bytes)},
    )
