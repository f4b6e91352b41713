from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.allocator.domain.pages import PAGE, pages_up
from permille.allocator.domain.usage_aware import Usage, Wish, plan_buffers
from permille.mesh.errors import InvalidArgument, ResourceExhausted

MIB = 1 << 20


@st.composite
def wishes(draw: st.DrawFn, affordable: bool = True) -> Wish:
    """The budget is enough for everybody's smallest buffer, unless any will do."""
    units = draw(st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=40))
    smallest = draw(st.integers(1, 4 * MIB))
    reserve = draw(st.integers(0 if units else 1, 128))
    least = (len(units) + reserve) * pages_up(smallest) if affordable else 1
    return Wish(
        usages=[Usage(unit, draw(st.floats(0, 1))) for unit in units],
        budget_bytes=draw(st.integers(least, 1 << 36)),
        period_ms=draw(st.integers(1, 60_000)),
        bytes_per_busy_second=draw(st.integers(1, 1 << 32)),
        reserve=reserve,
        min_buffer_bytes=smallest,
        max_buffer_bytes=draw(st.integers(smallest + PAGE, 256 * MIB)),
    )


@given(wishes(affordable=False))
def test_a_plan_stays_within_its_budget_and_bounds_or_names_the_smallest_budget(wish: Wish) -> None:
    try:
        plan = plan_buffers(wish)
    except ResourceExhausted as error:
        smallest = int(error.metadata["smallest_budget_bytes"])
        assert smallest > wish.budget_bytes
        again = plan_buffers(Wish(**{**wish.__dict__, "budget_bytes": smallest}))
        assert again.total_bytes == smallest
        return
    assert list(plan.buffers) == [usage.unit for usage in wish.usages]
    sizes = [*plan.buffers.values(), *[plan.reserve_buffer_bytes] * wish.reserve]
    assert sum(sizes) == plan.total_bytes <= wish.budget_bytes
    assert all(wish.min_buffer_bytes <= size <= wish.max_buffer_bytes and size % PAGE == 0 for size in sizes)


@given(wishes())
def test_who_is_used_more_never_gets_less(wish: Wish) -> None:
    plan = plan_buffers(wish)
    by_share = sorted(wish.usages, key=lambda usage: usage.share)
    for idler, busier in itertools.pairwise(by_share):
        # One page is the grain of the plan.
        assert plan.buffers[idler.unit] <= plan.buffers[busier.unit] + PAGE


@given(wishes())
def test_no_page_of_the_budget_is_left_while_somebody_could_use_it(wish: Wish) -> None:
    plan = plan_buffers(wish)
    useful = max(plan.buffers.values(), default=0)
    hungry = [size for size in plan.buffers.values() if size < useful]
    assert not hungry or wish.budget_bytes - plan.total_bytes < 2 * PAGE


def test_memory_goes_where_the_target_runs() -> None:
    plan = plan_buffers(
        Wish(
            usages=[Usage(11, 0.9), Usage(12, 0.1)],
            budget_bytes=100 * MIB,
            period_ms=10_000,
            bytes_per_busy_second=100 * MIB,
        )
    )
    assert plan.buffers[11] / plan.buffers[12] == pytest.approx(9, rel=0.02)
    assert plan.total_bytes > 99 * MIB
    assert plan.expected_bytes == 1000 * MIB


def test_a_short_period_takes_no_more_than_it_can_fill() -> None:
    plan = plan_buffers(
        Wish(usages=[Usage(1, 1.0)], budget_bytes=1024 * MIB, period_ms=10, bytes_per_busy_second=64 * MIB)
    )
    assert plan.total_bytes == math.ceil(64 * MIB * 10 * 4 / 1000 / PAGE) * PAGE


def test_threads_born_later_find_a_quarter_of_the_budget() -> None:
    plan = plan_buffers(
        Wish(
            usages=[Usage(1, 1.0)],
            budget_bytes=128 * MIB,
            period_ms=10_000,
            bytes_per_busy_second=64 * MIB,
            reserve=16,
        )
    )
    assert plan.reserve_buffer_bytes == 2 * MIB
    assert plan.buffers[1] == 96 * MIB


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"usages": []}, "usages"),
        ({"usages": [Usage(1, 0.5), Usage(1, 0.5)]}, "usages"),
        ({"usages": [Usage(1, 1.5)]}, "usages"),
        ({"usages": [Usage(1, math.nan)]}, "usages"),
        ({"budget_bytes": 0}, "budget_bytes"),
        ({"period_ms": -1}, "period_ms"),
        ({"reserve": -1}, "reserve"),
        ({"min_buffer_bytes": 8192, "max_buffer_bytes": 8191}, "max_buffer_bytes"),
    ],
)
def test_values_without_a_meaning_are_refused_by_name(change: dict[str, object], field: str) -> None:
    good: dict[str, object] = {
        "usages": [Usage(1, 0.5)],
        "budget_bytes": MIB,
        "period_ms": 500,
        "bytes_per_busy_second": MIB,
    }
    with pytest.raises(InvalidArgument) as error:
        plan_buffers(Wish(**{**good, **change}))  # type: ignore[arg-type]
    assert error.value.metadata["field"] == field
    assert error.value.help
