from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from permille.allocator.domain.core_use import Binding, CoreUse, CoreWish
from permille.allocator.domain.coreset import GRAIN, plan_cores, worth
from permille.allocator.domain.learned import Rate
from permille.allocator.domain.outlook import outlook_of
from permille.allocator.domain.pages import MIB, PAGE
from permille.mesh.errors import InvalidArgument, ResourceExhausted

RATE = Rate(256 * MIB)
shares = st.floats(0, 1)


@st.composite
def core_uses(draw: st.DrawFn, least: int = 1) -> list[CoreUse]:
    numbers = draw(st.lists(st.integers(0, 1023), unique=True, min_size=least, max_size=24))
    slices = draw(st.integers(0, 6))
    return [
        CoreUse(
            number,
            others=draw(shares),
            runs=tuple(draw(st.one_of(st.just(0.0), shares)) for _ in range(slices)),
            current=draw(st.booleans()),
            cache=draw(st.integers(0, 2)),
        )
        for number in numbers
    ]


@st.composite
def wishes(draw: st.DrawFn, least: int = 1, least_budget: int = 24 * 4 * MIB) -> CoreWish:
    """The smallest budget is enough for every core's smallest buffer, unless another is given."""
    cores = draw(core_uses(least))
    return CoreWish(
        cores=cores,
        online=len(cores) + draw(st.integers(0, 8)),
        period_ms=draw(st.integers(1, 5000)),
        rate=Rate(draw(st.floats(0, 2**30)), draw(st.floats(0, 1))),
        budget_bytes=draw(st.integers(least_budget, 1 << 30)),
        quota=draw(st.one_of(st.just(math.inf), st.floats(0.01, 32))),
        weight=draw(st.sampled_from([1.0, 0.01, 0.5, 20.0])),
        threads=draw(st.integers(1, 64)),
        pressure=draw(st.floats(0, 100)),
        seed=draw(st.integers(0, 99)),
        binding=draw(st.sampled_from([None, *Binding])),
    )


@given(wishes(), st.floats(0.001, 4), st.floats(0.001, 4), st.floats(0, 2))
def test_a_target_of_less_weight_writes_no_more_on_any_core(
    wish: CoreWish, one: float, other: float, part: float
) -> None:
    light, heavy = (outlook_of(replace(wish, weight=weight)).cores for weight in sorted((one, other)))
    for core, outlook in light.items():
        size = part * heavy[core].full_bytes
        assert outlook.chance_of_more_than(size) <= heavy[core].chance_of_more_than(size) + 1e-9
        assert outlook.expected_bytes <= heavy[core].expected_bytes * (1 + 1e-9)


@given(wishes(), st.floats(1, 1000))
def test_weight_changes_nothing_for_who_has_as_much_as_the_others_or_where_nobody_else_is(
    wish: CoreWish, weight: float
) -> None:
    nominal = replace(wish, weight=1.0)
    assert plan_cores(replace(wish, weight=weight)) == plan_cores(nominal)
    alone = replace(nominal, cores=[replace(use, others=0.0) for use in wish.cores])
    assert plan_cores(replace(alone, weight=1 / weight)) == plan_cores(alone)


def test_a_target_of_little_weight_gets_its_memory_where_others_leave_it_time() -> None:
    runs = (0.5, 0.5, 0.5, 0.5)
    cores = [CoreUse(0, others=0.9, runs=runs, current=True), CoreUse(1, others=0.0, runs=runs, current=True)]
    wish = CoreWish(cores, 2, 500, RATE, budget_bytes=64 * MIB, binding=Binding.CPU_SHARE)
    equal, light = plan_cores(wish).buffers, plan_cores(replace(wish, weight=0.01)).buffers
    assert light[0] < equal[0] and light[1] > equal[1]


@given(wishes(least_budget=1))
def test_a_plan_stays_within_its_budget_and_bounds_or_names_the_smallest_budget(wish: CoreWish) -> None:
    try:
        plan = plan_cores(wish)
    except ResourceExhausted as error:
        smallest = int(error.metadata["smallest_budget_bytes"])
        assert smallest > wish.budget_bytes
        assert plan_cores(replace(wish, budget_bytes=smallest)).total_bytes == smallest
        return
    assert sum(plan.buffers.values()) == plan.total_bytes <= plan.budget_bytes <= wish.budget_bytes
    assert all(4 * MIB <= size <= 128 * MIB and size % PAGE == 0 for size in plan.buffers.values())
    assert plan.buffers


@given(wishes())
def test_every_core_has_a_buffer_or_a_reason_for_having_none(wish: CoreWish) -> None:
    plan = plan_cores(wish)
    assert plan.buffers.keys() == plan.reasons.keys()
    assert plan.buffers.keys() | plan.left_out.keys() == {use.core for use in wish.cores}
    assert not plan.buffers.keys() & plan.left_out.keys()
    assert all([*plan.reasons.values(), *plan.left_out.values()])


@given(wishes())
def test_a_cpu_set_gets_equal_buffers_on_exactly_its_cores(wish: CoreWish) -> None:
    plan = plan_cores(replace(wish, binding=Binding.CPU_SET))
    assert plan.buffers.keys() == {use.core for use in wish.cores}
    assert len(set(plan.buffers.values())) == 1


@given(wishes(least=2), st.data())
def test_of_two_cores_alike_the_one_that_others_use_less_gets_the_bigger_buffer(
    wish: CoreWish, data: st.DataObject
) -> None:
    first, second = wish.cores[:2]
    idler, busier = sorted((data.draw(shares), data.draw(shares)))
    cores = [replace(first, others=idler), replace(first, core=second.core, others=busier), *wish.cores[2:]]
    plan = plan_cores(replace(wish, cores=cores, binding=Binding.CPU_SHARE))
    assume({first.core, second.core} <= plan.buffers.keys())
    # One grain is what the plan divides by.
    assert plan.buffers[first.core] >= plan.buffers[second.core] - GRAIN


@given(wishes(least=2))
def test_of_two_cores_alike_the_one_that_the_target_used_more_gets_the_bigger_buffer(wish: CoreWish) -> None:
    first, second = wish.cores[:2]
    more = tuple(map(max, zip(first.runs, second.runs, strict=True)))
    less = tuple(map(min, zip(first.runs, second.runs, strict=True)))
    cores = [
        replace(first, runs=more),
        replace(first, core=second.core, runs=less),
        *wish.cores[2:],
    ]
    plan = plan_cores(replace(wish, cores=cores, binding=Binding.CPU_SHARE))
    assume({first.core, second.core} <= plan.buffers.keys())
    assert plan.buffers[first.core] >= plan.buffers[second.core] - GRAIN


@given(wishes(), st.integers(0, 1 << 29))
def test_more_budget_never_takes_from_a_core_that_both_plans_choose(wish: CoreWish, more: int) -> None:
    small = plan_cores(wish)
    large = plan_cores(replace(wish, budget_bytes=wish.budget_bytes + more))
    assume(small.buffers.keys() == large.buffers.keys())
    assert all(large.buffers[core] >= small.buffers[core] for core in small.buffers)


@given(wishes(), shares, shares)
def test_more_memory_pressure_never_takes_more_memory(wish: CoreWish, one: float, other: float) -> None:
    calm, tight = sorted((100 * one, 100 * other))
    assert (
        plan_cores(replace(wish, pressure=tight)).budget_bytes <= plan_cores(replace(wish, pressure=calm)).budget_bytes
    )


@given(wishes())
def test_no_grain_is_left_while_a_core_would_probably_fill_it(wish: CoreWish) -> None:
    much = replace(wish, period_ms=5000, rate=Rate(2**29), quota=math.inf, binding=Binding.CPU_SHARE)
    plan, outlook = plan_cores(much), outlook_of(much)
    # Of a core that others have for themselves even five seconds fill little.
    hungry = [core for core, size in plan.buffers.items() if size < 128 * MIB and worth(outlook.cores[core], size)]
    assert not hungry or plan.total_bytes == plan.budget_bytes


@given(wishes(), st.randoms())
def test_a_plan_does_not_depend_on_the_order_of_the_cores(wish: CoreWish, random: object) -> None:
    shuffled = list(wish.cores)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan_cores(replace(wish, cores=shuffled)).buffers == plan_cores(wish).buffers


@given(core_uses())
def test_every_current_core_is_traced_while_the_budget_has_a_smallest_buffer_for_it(cores: list[CoreUse]) -> None:
    plan = plan_cores(CoreWish(cores, len(cores), 500, RATE))
    assert {use.core for use in cores if use.current} <= plan.buffers.keys()


@pytest.mark.parametrize(
    ("allowed", "quota", "binding"),
    [
        (4, math.inf, Binding.CPU_SET),
        (4, 4.0, Binding.CPU_SET),
        (4, 1.5, Binding.CPU_SHARE),
        (16, math.inf, Binding.CPU_SHARE),
        (16, 32.0, Binding.CPU_SHARE),
    ],
)
def test_a_target_is_bound_when_it_has_fewer_cores_than_there_are_and_the_time_to_use_them(
    allowed: int, quota: float, binding: Binding
) -> None:
    wish = CoreWish([CoreUse(core) for core in range(allowed)], 16, 500, RATE, quota=quota)
    assert plan_cores(wish).binding is binding


def test_memory_goes_where_the_target_runs_and_then_to_the_least_used_cores() -> None:
    busy = [CoreUse(0, 0.1, (0.8,) * 10), CoreUse(1, 0.1, (0.3,) * 10)]
    rest = [CoreUse(core, core / 10, (0.0,) * 10) for core in range(2, 8)]
    plan = plan_cores(CoreWish([*busy, *rest], 8, 500, RATE, budget_bytes=500 * MIB))
    sizes = list(plan.buffers.values())
    assert plan.buffers[0] == max(sizes)
    sampled = [plan.buffers[use.core] for use in rest if use.core in plan.buffers]
    assert len(sampled) >= 2
    assert all(less >= more - GRAIN for less, more in itertools.pairwise(sampled))
    assert sampled[0] > sampled[-1]
    assert "80% of it" in plan.reasons[0]


def test_a_target_that_never_moves_leaves_the_rest_of_a_large_machine_alone() -> None:
    cores = [CoreUse(0, 0.0, (0.9,) * 50), *(CoreUse(core, runs=(0.0,) * 50) for core in range(1, 128))]
    plan = plan_cores(CoreWish(cores, 128, 500, RATE, budget_bytes=256 * MIB))
    assert plan.buffers[0] == 128 * MIB
    assert len(plan.buffers) < 128
    assert "not sampled" in next(iter(plan.left_out.values()))


def test_another_seed_samples_other_cores_of_equal_use() -> None:
    to_and_fro = [CoreUse(0, 0.0, (0.5, 0.0) * 5), CoreUse(1, 0.0, (0.0, 0.5) * 5)]
    cores = [*to_and_fro, *(CoreUse(core, runs=(0.0,) * 10) for core in range(2, 64))]
    plans = {tuple(plan_cores(CoreWish(cores, 64, 500, RATE, budget_bytes=64 * MIB, seed=n)).buffers) for n in range(4)}
    assert len(plans) == 4
    assert all(plan[:2] == (0, 1) for plan in plans)


def test_a_rarely_used_core_is_sampled_more_often() -> None:
    cores = [
        CoreUse(0, runs=(0.5, 0.0) * 5),
        CoreUse(1, runs=(0.0, 0.5) * 5),
        *(CoreUse(core, others=0.9 if core % 2 else 0.1, runs=(0.0,) * 10) for core in range(2, 66)),
    ]
    idle = busy = 0
    for seed in range(50):
        chosen = plan_cores(CoreWish(cores, 66, 500, RATE, budget_bytes=128 * MIB, seed=seed)).buffers
        idle += sum(core % 2 == 0 for core in chosen if core > 1)
        busy += sum(core % 2 == 1 for core in chosen if core > 1)
    assert idle > 3 * busy


def test_without_a_history_the_least_used_cores_get_the_most() -> None:
    cores = [CoreUse(core, others=0.25 * core, current=core == 3) for core in range(4)]
    plan = plan_cores(CoreWish(cores, 4, 500, RATE, budget_bytes=200 * MIB))
    assert plan.buffers[3] > plan.buffers[0] > plan.buffers[1] > plan.buffers[2]


def test_a_sleeping_target_keeps_room_for_a_burst_where_it_last_ran() -> None:
    cores = [CoreUse(core, runs=(0.0,) * 10, current=core == 2) for core in range(8)]
    plan = plan_cores(CoreWish(cores, 8, 500, RATE, budget_bytes=500 * MIB))
    assert plan.buffers[2] == max(plan.buffers.values())


def test_a_short_period_takes_no_more_than_it_can_fill() -> None:
    plan = plan_cores(CoreWish([CoreUse(0), CoreUse(1)], 4, 100, Rate(256 * MIB, spread=0.25)))
    assert plan.buffers == {0: 32 * MIB, 1: 32 * MIB}


def test_a_learned_rate_refines_the_sizes() -> None:
    cores = [CoreUse(0, runs=(0.5,) * 10), CoreUse(1, runs=(0.1,) * 10)]
    slow, fast = (plan_cores(CoreWish(cores, 2, 500, Rate(rate * MIB, 0.1, 5))) for rate in (20, 400))
    assert slow.total_bytes < fast.total_bytes
    assert slow.expected_bytes < fast.expected_bytes


def test_memory_pressure_shrinks_the_budget_to_a_quarter_at_most() -> None:
    wish = CoreWish([CoreUse(core) for core in range(8)], 8, 500, RATE, budget_bytes=400 * MIB)
    assert plan_cores(replace(wish, pressure=1.0)).budget_bytes == 400 * MIB
    assert 100 * MIB < plan_cores(replace(wish, pressure=10.0)).budget_bytes < 400 * MIB
    assert plan_cores(replace(wish, pressure=99.0)).budget_bytes == 100 * MIB


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cores": []}, "cores"),
        ({"cores": [CoreUse(1), CoreUse(1)]}, "cores"),
        ({"cores": [CoreUse(1, others=1.5)]}, "cores"),
        ({"cores": [CoreUse(1, runs=(math.nan,))]}, "cores"),
        ({"cores": [CoreUse(1, runs=(0.5,)), CoreUse(2)]}, "runs"),
        ({"online": 0}, "online"),
        ({"budget_bytes": 0}, "budget_bytes"),
        ({"quota": 0.0}, "quota"),
        ({"quota": math.nan}, "quota"),
        ({"threads": 0}, "threads"),
        ({"pressure": 101.0}, "pressure"),
        ({"max_buffer_bytes": MIB}, "max_buffer_bytes"),
    ],
)
def test_values_without_a_meaning_are_refused_by_name(change: dict[str, object], field: str) -> None:
    good = CoreWish([CoreUse(0)], 4, 500, RATE)
    with pytest.raises(InvalidArgument) as error:
        plan_cores(replace(good, **change))  # type: ignore[arg-type]
    assert error.value.metadata["field"] == field
    assert error.value.help
