"""The period that is decided: within its range, monotone in each input, and the sum of what explains it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.plan import Wish, plan
from permille.coverage.domain.rates import Observation, Rates
from permille.coverage.domain.target import Target
from permille.coverage.domain.temporal_decider import (
    HIGHEST_WEIGHT,
    LONGEST_DECIDED_MS,
    PRIORITY_OF,
    SHORTEST_DECIDED_MS,
    Situation,
    Term,
    Weights,
    decide,
    priority_for,
)
from permille.coverage.service.wire import wish_of
from permille.mesh.errors import InvalidArgument

amounts = st.floats(0, 1e12, allow_nan=False)
situations = st.builds(
    Situation,
    priority=st.integers(0, 100),
    blocks=st.floats(0, 1e8),
    binary_bytes=st.integers(0, 1 << 40),
    issues=st.floats(0, 1e6),
    bytes_per_second=amounts,
)
shares = st.floats(0, 10)
weightings = st.builds(
    Weights,
    priority=shares,
    complexity=shares,
    stability=shares,
    full_blocks=st.integers(1, 1 << 30),
    bytes_per_block=st.integers(1, 1 << 20),
    full_issues=st.floats(0.1, 1000),
    reference_bytes_per_second=st.floats(1, 1e10),
)


@given(situations, weightings)
def test_every_period_is_within_the_range_and_the_sum_of_its_terms(situation: Situation, weights: Weights) -> None:
    decision = decide(situation, weights)
    assert SHORTEST_DECIDED_MS <= decision.period_ms <= LONGEST_DECIDED_MS
    assert abs(sum(term.contribution for term in decision.terms) - decision.period_ms) <= 0.51


@given(situations, weightings, st.sampled_from(["priority", "blocks", "issues"]), amounts)
def test_more_of_a_reason_never_means_less_time(situation: Situation, weights: Weights, what: str, more: float) -> None:
    raised = getattr(situation, what) + more
    larger = replace(situation, **{what: min(100, round(raised)) if what == "priority" else raised})
    assert decide(larger, weights).period_ms >= decide(situation, weights).period_ms


def test_the_size_of_a_binary_that_nobody_has_seen_run_is_what_its_node_says() -> None:
    def period_ms(size: int | None, known: Rates) -> int:
        node = Node("n1", (Process(1, "server", binary_bytes=size),))
        return plan(Wish(Target(process_name="server")), [node], {("vpt", "server"): known}).nodes[0].period_ms

    seen = Rates().after(Observation(1, 100, 1 << 20, 0, 600, blocks=3))
    assert period_ms(1_000, Rates()) < period_ms(None, Rates()) < period_ms(10_000_000, Rates())
    assert period_ms(100_000, seen) == period_ms(10_000_000, seen)
    # A session of which nothing could be decoded changes nothing.
    assert seen.after(Observation(1, 100, 0, 1 << 20, 600)).blocks == 3
    assert Rates().after(Observation(1, 100, 0, 1 << 20, 600)).blocks is None


def test_a_request_may_bring_its_own_weights() -> None:
    nodes = [Node("n1", (Process(1, "server"),))]

    def period_ms(**weights: float) -> int:
        wish = Wish(Target(process_name="server"), Purpose.ANOMALY, weights=weights)
        return plan(wish, nodes, {}, issues={"server": 5.0}).nodes[0].period_ms

    assert period_ms(priority=0, complexity=0, stability=7) == LONGEST_DECIDED_MS
    assert period_ms(priority=0, complexity=0, stability=0) == SHORTEST_DECIDED_MS
    assert period_ms() == period_ms(priority=50, complexity=30, stability=20)


@pytest.mark.parametrize("weight", [-1.0, 1.1e6, 1e308, float("nan"), float("inf")])
def test_a_weight_that_cannot_be_is_refused(weight: float) -> None:
    target = coverage_pb2.Target(process_name="server")
    request = coverage_pb2.CoverageRequest(target=target, weights=coverage_pb2.Weights(stability=weight))
    with pytest.raises(InvalidArgument, match="the weight of stability") as refused:
        wish_of(request)
    assert refused.value.help == "a weight is 0 to 1,000,000; only the ratios of the three count"


@pytest.mark.parametrize("each", [HIGHEST_WEIGHT, 0.01, 1e-300])
def test_equal_weights_decide_the_same_however_large_they_may_be(each: float) -> None:
    situation = Situation(50, blocks=100, issues=1.0)
    same = decide(situation, Weights().by(dict.fromkeys(("priority", "complexity", "stability"), 1.0)))
    weights = Weights().by(dict.fromkeys(("priority", "complexity", "stability"), each))
    assert decide(situation, weights).period_ms == same.period_ms


@given(situations, weightings, st.integers(1, 1 << 40))
def test_a_larger_binary_never_means_less_time_while_nobody_has_seen_it_run(
    situation: Situation, weights: Weights, more: int
) -> None:
    unseen = replace(situation, blocks=None)
    larger = replace(unseen, binary_bytes=(situation.binary_bytes or 0) + more)
    assert decide(larger, weights).period_ms >= decide(unseen, weights).period_ms


@given(situations, weightings)
def test_none_known_is_the_least_and_unknown_lies_between_none_and_full(situation: Situation, weights: Weights) -> None:
    none = replace(situation, blocks=0)
    unknown = replace(situation, blocks=None, binary_bytes=None)
    full = replace(situation, blocks=weights.full_blocks)
    for other in (situation, unknown, replace(situation, blocks=None), full):
        assert decide(none, weights).period_ms <= decide(other, weights).period_ms
    assert decide(replace(unknown, binary_bytes=0), weights).period_ms == decide(none, weights).period_ms
    assert decide(unknown, weights).period_ms <= decide(full, weights).period_ms


def test_nothing_known_is_told_from_known_to_be_nothing() -> None:
    def complexity(**known: int) -> Term:
        return next(term for term in decide(Situation(50, **known), Weights()).terms if term.name == "complexity")

    assert (complexity().value, complexity().detail) == (0.5, "never seen running")
    assert complexity(blocks=0).value == complexity(binary_bytes=0).value == 0
    assert complexity(blocks=0, binary_bytes=1 << 30).value == 0
    large = complexity(binary_bytes=10_000_000)
    assert (large.value, large.detail) == (1.0, "a binary of 10000000 bytes, never seen running")


@given(situations, weightings, amounts)
def test_what_costs_its_target_more_is_never_looked_at_for_longer(
    situation: Situation, weights: Weights, more: float
) -> None:
    dearer = replace(situation, bytes_per_second=situation.bytes_per_second + more)
    assert decide(dearer, weights).period_ms <= decide(situation, weights).period_ms


def test_the_extremes_reach_the_ends_of_the_range() -> None:
    assert decide(Situation(0, blocks=0), Weights()).period_ms == SHORTEST_DECIDED_MS
    assert decide(Situation(100, blocks=100_000, issues=5), Weights()).period_ms == LONGEST_DECIDED_MS
    troubled = Situation(100, blocks=100_000, issues=5, bytes_per_second=100e6)
    assert decide(troubled, Weights()).period_ms == SHORTEST_DECIDED_MS + (2000 - SHORTEST_DECIDED_MS) // 2


def test_the_explanation_names_every_input_with_its_weight() -> None:
    terms = {term.name: term for term in decide(Situation(50, blocks=100, issues=2.5), Weights()).terms}
    assert list(terms) == ["base", "priority", "complexity", "stability", "overhead"]
    assert (terms["priority"].value, terms["priority"].weight) == (0.5, 0.5)
    assert terms["priority"].contribution == pytest.approx(1900 * 0.5 * 0.5)
    assert terms["complexity"].detail == "100 blocks seen"
    assert terms["stability"].value == 0.5
    assert terms["overhead"].contribution == 0


def test_the_longest_that_is_allowed_is_kept() -> None:
    assert decide(Situation(100, blocks=100_000, issues=5), Weights(), longest_ms=300).period_ms == 300


def test_without_any_weight_the_shortest_is_decided() -> None:
    nothing = Weights(priority=0, complexity=0, stability=0)
    assert decide(Situation(100, issues=9), nothing).period_ms == SHORTEST_DECIDED_MS


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_priority_not_given_is_the_purposes_own(purpose: Purpose) -> None:
    assert priority_for(purpose, None) == PRIORITY_OF[purpose]
    assert priority_for(purpose, 0) == 0


@pytest.mark.parametrize("asked", [-1, 101])
def test_a_priority_outside_is_refused(asked: int) -> None:
    with pytest.raises(InvalidArgument, match=f"priority {asked}"):
        priority_for(Purpose.ANOMALY, asked)
