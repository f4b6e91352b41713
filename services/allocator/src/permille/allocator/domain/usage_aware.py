"""Usage-aware buffer planning: memory goes where the target runs.

Formula. Let B be the budget, r the number of reserved buffers, m and M the smallest and largest buffer, s_i the share
of one core's time that the target had on unit i. All sizes are whole pages of 4 KiB: a ToPA entry is a power of two
between 4 KiB and 128 MiB (Intel SDM volume 3, "Table of Physical Addresses"), and any number of pages is a chain of
such entries.

1. U, the most that is useful: a unit that runs the whole period writes `bytes_per_busy_second * period`; U is
   `HEADROOM` times that, and never above M nor below m. Memory beyond U would stay empty however the load shifts.
2. Reserve: nobody knows who will be born, so the r reserved buffers are equal and have `RESERVE_SHARE` of B together:
   R = clamp(B * RESERVE_SHARE / r, m, U); less when the others could not have their minimum otherwise.
3. Everybody else gets m, and the rest of B in proportion to s_i until U is reached; what a full unit leaves over goes
   to the others, again in proportion (water filling). A unit never seen running weighs `IDLE_SHARE`, not zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from permille.allocator.domain.pages import PAGE, pages_down, pages_up
from permille.mesh.errors import InvalidArgument, ResourceExhausted

MIN_BUFFER_BYTES = 64 * 1024
MAX_BUFFER_BYTES = 128 * 1024 * 1024
# One unit can become several times busier than it was while its share was sampled.
HEADROOM = 4
RESERVE_SHARE = 0.25
IDLE_SHARE = 0.01


@dataclass(frozen=True)
class Usage:
    """How much one core (number) or thread (id) was used by the target lately; share is 0 to 1."""

    unit: int
    share: float


@dataclass(frozen=True)
class Wish:
    """What a plan has to satisfy; sizes in bytes, the period in ms."""

    usages: Sequence[Usage]
    budget_bytes: int
    period_ms: int
    bytes_per_busy_second: int
    reserve: int = 0
    min_buffer_bytes: int = MIN_BUFFER_BYTES
    max_buffer_bytes: int = MAX_BUFFER_BYTES


@dataclass(frozen=True)
class Plan:
    """Sizes in bytes by unit, in the order of the wish; `total_bytes` never exceeds the budget."""

    buffers: dict[int, int]
    reserve_buffer_bytes: int
    total_bytes: int
    expected_bytes: int


def plan_buffers(wish: Wish) -> Plan:
    """The plan for a wish.

    Raises InvalidArgument for values without a meaning, ResourceExhausted (reason BUDGET_TOO_SMALL, metadata
    `smallest_budget_bytes`) when not everybody can have the smallest buffer.
    """
    check(wish)
    smallest = pages_up(wish.min_buffer_bytes)
    useful = most_useful(wish, smallest)
    budget = pages_down(wish.budget_bytes)
    needed = smallest * (len(wish.usages) + wish.reserve)
    if budget < needed:
        raise ResourceExhausted(
            f"budget_bytes is {wish.budget_bytes}, too small for {len(wish.usages)} buffers and {wish.reserve} in"
            f" reserve of at least {smallest} bytes each",
            reason="BUDGET_TOO_SMALL",
            help=f"set budget_bytes to {needed} or more (permille trace --buffer), or ask for fewer or smaller buffers",
            metadata={"smallest_budget_bytes": str(needed), "budget_bytes": str(wish.budget_bytes)},
        )
    reserve = reserved_buffer(wish, budget, smallest, useful)
    room = budget - reserve * wish.reserve
    buffers = fill(wish.usages, room, smallest, useful)
    return Plan(
        buffers=buffers,
        reserve_buffer_bytes=reserve,
        total_bytes=sum(buffers.values()) + reserve * wish.reserve,
        expected_bytes=expected_bytes(wish),
    )


def expected_bytes(wish: Wish) -> int:
    """What the target writes during the period when it goes on as before."""
    busy_seconds = sum(usage.share for usage in wish.usages) * wish.period_ms / 1000
    return math.ceil(busy_seconds * wish.bytes_per_busy_second)


def most_useful(wish: Wish, smallest: int) -> int:
    full_load = wish.bytes_per_busy_second * wish.period_ms * HEADROOM // 1000
    return max(smallest, min(pages_up(full_load), pages_down(wish.max_buffer_bytes)))


def reserved_buffer(wish: Wish, budget: int, smallest: int, useful: int) -> int:
    if not wish.reserve:
        return 0
    wanted = pages_down(int(budget * RESERVE_SHARE) // wish.reserve)
    affordable = pages_down((budget - smallest * len(wish.usages)) // wish.reserve)
    return min(max(wanted, smallest), useful, affordable)


def fill(usages: Sequence[Usage], room: int, smallest: int, useful: int) -> dict[int, int]:
    sizes = {usage.unit: smallest for usage in usages}
    weights = {usage.unit: max(usage.share, IDLE_SHARE) for usage in usages}
    left = room - smallest * len(sizes)
    hungry = [unit for unit in sizes if sizes[unit] < useful]
    while hungry and left >= PAGE:
        total = sum(weights[unit] for unit in hungry)
        given = 0
        for unit in hungry:
            part = pages_down(int(left * (weights[unit] / total)))
            part = min(part, useful - sizes[unit], left - given)
            sizes[unit] += part
            given += part
        if not given:
            # What is left is too little to divide: a page for whoever is furthest below its part.
            sizes[max(hungry, key=lambda unit: weights[unit] / sizes[unit])] += PAGE
            given = PAGE
        left -= given
        hungry = [unit for unit in hungry if sizes[unit] < useful]
    return sizes


def check(wish: Wish) -> None:
    if not wish.usages and not wish.reserve:
        raise invalid("usages", "empty and reserve is 0", "name at least one core or thread, or keep a reserve")
    units = [usage.unit for usage in wish.usages]
    if len(set(units)) != len(units):
        twice = next(unit for unit in units if units.count(unit) > 1)
        raise invalid("usages", f"naming unit {twice} twice", "name every unit once")
    for usage in wish.usages:
        if not 0 <= usage.share <= 1:
            raise invalid("usages", f"giving unit {usage.unit} a share of {usage.share}", "a share is between 0 and 1")
    for field in ("budget_bytes", "period_ms", "bytes_per_busy_second", "min_buffer_bytes", "max_buffer_bytes"):
        if getattr(wish, field) <= 0:
            raise invalid(field, str(getattr(wish, field)), "it has to be more than 0")
    if wish.reserve < 0:
        raise invalid("reserve", str(wish.reserve), "it cannot be negative")
    if pages_down(wish.max_buffer_bytes) < pages_up(wish.min_buffer_bytes):
        raise invalid(
            "max_buffer_bytes",
            str(wish.max_buffer_bytes),
            f"it has to hold at least min_buffer_bytes ({wish.min_buffer_bytes}) in whole pages of {PAGE}",
        )


def invalid(field: str, value: str, way_out: str) -> InvalidArgument:
    return InvalidArgument(f"{field} is {value}", reason="INVALID_BUFFER_WISH", help=way_out, metadata={"field": field})
