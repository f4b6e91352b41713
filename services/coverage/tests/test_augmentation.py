"""Sessions merged, held against the truth, and held against each other."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.accuracy import MAX_ERROR, accuracy, error
from permille.coverage.domain.augmentation import merge
from permille.coverage.domain.divergence import Measure, Place, Seen, diverge, log_likelihood_ratio, ranked
from permille.coverage.domain.profile import Edge, Function, Profile, Totals

MAIN, GET, SET = (Function("/bin/server", "ab", address, name) for address, name in enumerate(("main", "get", "set")))
NEW_GET = Function("/bin/server", "cd", 77, "get")


def profile(name: str, calls: dict[Function, int], *, raw_bytes: int = 100, lost_bytes: int = 0) -> Profile:
    functions = {function: Totals(count, 10 * count, 20 * count) for function, count in calls.items()}
    edges = {Edge(MAIN, function): count for function, count in calls.items() if function != MAIN}
    return Profile(name, raw_bytes=raw_bytes, lost_bytes=lost_bytes, functions=functions, edges=edges)


counts = st.dictionaries(st.integers(0, 20), st.integers(0, 1000), max_size=12)


def test_replicas_merge_into_sums_and_each_fills_the_others_holes() -> None:
    merged = merge([profile("a", {MAIN: 1, GET: 5}), profile("b", {MAIN: 1, SET: 3})])
    assert merged.functions[MAIN].totals == Totals(2, 20, 40)
    assert merged.functions[MAIN].sessions == 2
    assert merged.edges[Edge(MAIN, GET)].count == 5
    one, other = merged.replicas
    assert (one.functions, one.filled_functions, one.only_here) == (2, 1, 1)
    assert (other.edges, other.filled_edges) == (1, 1)


def test_functions_of_two_builds_stay_apart() -> None:
    merged = merge([profile("a", {GET: 5}), profile("b", {NEW_GET: 3})])
    assert {f.build_id: m.totals.calls for f, m in merged.functions.items()} == {"ab": 5, "cd": 3}


def test_a_session_that_lost_half_counts_for_all_of_it_and_one_that_lost_nearly_all_does_not() -> None:
    half = profile("a", {GET: 5}, raw_bytes=100, lost_bytes=100)
    nearly_all = profile("b", {SET: 5}, raw_bytes=1, lost_bytes=10_000)
    merged = merge([half, nearly_all])
    assert merged.functions[GET].weighted_calls == 10
    assert merged.edges[Edge(MAIN, GET)].weighted == 10
    assert merged.functions[SET].weighted_calls == 20


@given(st.permutations([{MAIN: 1, GET: 5}, {SET: 3}, {MAIN: 2, SET: 9}]))
def test_the_order_of_replicas_does_not_matter(calls: list[dict[Function, int]]) -> None:
    one, other = merge([profile("x", c) for c in calls]), merge([profile("x", c) for c in reversed(calls)])
    assert (one.functions, one.edges) == (other.functions, other.edges)


@given(counts, counts)
def test_accuracy_is_one_for_the_truth_zero_for_nothing_in_common_and_symmetric(
    a: dict[int, int], b: dict[int, int]
) -> None:
    assert accuracy(a, a) == 1
    assert 0 <= accuracy(a, b) <= 1 + 1e-9
    assert error(a, b) == pytest.approx(error(b, a))
    elsewhere = {key + 100: count for key, count in b.items()}
    if any(a.values()) and any(b.values()):
        assert error(a, elsewhere) == pytest.approx(MAX_ERROR)


def test_accuracy_is_that_of_the_published_formula() -> None:
    # Shares 0.5/0.5 against 0.75/0.25: L1 is 0.5, of at most 2.
    assert accuracy({"a": 1, "b": 1}, {"a": 3, "b": 1}) == pytest.approx((2 - 0.5) / 2)
    assert accuracy({}, {"a": 1}) == 0


def test_the_ratio_is_that_of_the_two_by_two_table() -> None:
    # Dunning's own way of writing it: 2 (log L(p1) + log L(p2) - 2 log L(p)).
    def log_l(k: int, n: int, p: float) -> float:
        return k * math.log(p) + (n - k) * math.log(1 - p)

    expected = 2 * (
        log_l(30, 100, 0.3) + log_l(50, 1000, 0.05) - log_l(30, 100, 80 / 1100) - log_l(50, 1000, 80 / 1100)
    )
    assert log_likelihood_ratio(30, 100, 50, 1000) == pytest.approx(expected)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_ratio_is_zero_for_equal_shares_and_positive_otherwise(a: int, rest_a: int, b: int, rest_b: int) -> None:
    found = log_likelihood_ratio(a, a + rest_a, b, b + rest_b)
    assert found >= 0
    assert log_likelihood_ratio(a, a + rest_a, 3 * a, 3 * (a + rest_a)) == 0
    if (a, b) == (0, 1000) and rest_a and rest_b:
        assert found > 0


def test_what_only_one_side_did_comes_first_unless_it_may_be_chance_and_then_the_larger_shift() -> None:
    a = {"same": Seen(100, 1), "shifted": Seen(100, 1), "slightly": Seen(50, 1), "gone": Seen(1, 1)}
    b = {"same": Seen(100, 1), "shifted": Seen(10, 1), "slightly": Seen(45, 1), "came": Seen(40, 1)}
    rows = ranked(a, b)
    assert [row.key for row in rows][:2] == ["came", "shifted"]
    assert [row.only_in for row in rows][:2] == ["b", ""]
    assert rows[1].share_a == pytest.approx(100 / 251)
    assert next(row for row in rows if row.key == "gone").only_in == "a"


def test_two_builds_are_compared_by_name() -> None:
    divergence = diverge([profile("a", {MAIN: 1, GET: 5})], [profile("b", {MAIN: 1, NEW_GET: 5, SET: 9})])
    assert divergence.functions[0].key == Place("/bin/server", "set")
    assert divergence.functions[0].only_in == "b"
    assert not [row for row in divergence.functions if row.key.name == "get" and row.only_in]
    assert [row.key.callee.name for row in divergence.ways if row.only_in] == ["set"]


def test_sessions_are_counted_beside_the_counts() -> None:
    divergence = diverge([profile("a", {GET: 5}), profile("b", {GET: 1})], [profile("c", {SET: 1})], Measure.CALLS)
    got = next(row for row in divergence.functions if row.key.name == "get")
    assert (got.a, got.b) == (Seen(6, 2), Seen())


def test_equal_sets_do_not_differ() -> None:
    same = [profile("a", {MAIN: 1, GET: 5})]
    divergence = diverge(same, same)
    assert (divergence.functions, divergence.ways) == ([], [])
