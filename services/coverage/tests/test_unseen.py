"""What has not been seen is estimated; rounds go on while they pay."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.rounds import Action, Evidence, Worth, next_round, options
from permille.coverage.domain.unseen import Incidence, expected_new, sample_coverage, unseen

units = st.lists(st.frozensets(st.integers(0, 60), max_size=40), max_size=12)


def test_the_estimates_are_those_of_the_formulas() -> None:
    # Colwell et al. write it out: T units, Q1 items in one of them, Q2 in two.
    seen = Incidence(10, {1: 20, 2: 10, 5: 30})
    assert seen.observed == 60
    assert unseen(seen) == pytest.approx(0.9 * 20 * 20 / (2 * 10))
    assert sample_coverage(seen) == pytest.approx(1 - 20 / 190 * (9 * 20) / (9 * 20 + 2 * 10))
    missing = unseen(seen)
    assert expected_new(seen, 3) == pytest.approx(missing * (1 - (1 - 20 / (10 * missing + 20)) ** 3))


def test_without_anything_seen_twice_the_bias_corrected_form_counts() -> None:
    assert unseen(Incidence(5, {1: 4})) == pytest.approx(0.8 * 4 * 3 / 2)


def test_one_unit_cannot_tell() -> None:
    assert unseen(Incidence.of([{"a", "b"}])) == 0
    assert sample_coverage(Incidence.of([{"a", "b"}])) == 0


def test_of_two_units_what_is_in_both_is_no_sign_that_little_is_missing() -> None:
    seen = Incidence(2, {1: 20, 2: 500})
    assert unseen(seen) == 10
    assert expected_new(seen, 1) == pytest.approx(5)


def test_nothing_is_missing_when_every_unit_saw_the_same() -> None:
    seen = Incidence.of([{"a", "b"}] * 4)
    assert (unseen(seen), sample_coverage(seen), expected_new(seen, 5)) == (0, 1, 0)


@given(units)
def test_estimates_are_within_their_bounds(sets: list[frozenset[int]]) -> None:
    seen = Incidence.of(sets)
    assert seen.observed == len(frozenset().union(*sets))
    assert unseen(seen) >= 0
    assert 0 <= sample_coverage(seen) <= 1
    gains = [expected_new(seen, more) for more in (0, 1, 2, 5, 1000)]
    assert gains == sorted(gains)
    assert gains[0] == 0
    assert gains[-1] <= unseen(seen) + 1e-6


def test_the_unseen_of_a_known_world_are_about_as_many_as_there_are() -> None:
    # 300 functions, the n-th in a share 1/(1+n/10) of all sessions: few common, many rare.
    dice = random.Random(7)
    found = []
    for _ in range(60):
        sessions = [{n for n in range(300) if dice.random() < 1 / (1 + n / 10)} for _ in range(10)]
        seen = Incidence.of(sessions)
        found.append((unseen(seen), 300 - seen.observed, expected_new(seen, 1)))
    estimated, missing, new = (sum(column) / len(found) for column in zip(*found, strict=True))
    # A lower bound, and no wild one.
    assert 0.7 * missing < estimated < 1.1 * missing
    # The eleventh session's new functions: those not in ten and in the next.
    truth = sum((1 - p) ** 10 * p for n in range(300) if (p := 1 / (1 + n / 10)) < 1)
    assert new == pytest.approx(truth, rel=0.15)


def evidence(
    sessions: Incidence, windows: Incidence | None = None, *, size: int = 1 << 20, period_ms: int = 500
) -> Evidence:
    return Evidence(sessions, windows or Incidence(10, {1: 40, 2: 20, 10: 40}), size, 1.0, period_ms)


RICH = Incidence(3, {1: 60, 2: 20, 3: 20})
POOR = Incidence(3, {3: 100})


def test_rounds_go_on_with_another_replica_while_it_brings_enough() -> None:
    verdict = next_round(evidence(RICH), Worth(), done=1, limit=9, unused=True, longest_ms=500)
    assert verdict.action is Action.REPLICA
    assert verdict.best is not None
    assert verdict.best.new_functions == pytest.approx(expected_new(RICH, 1))
    assert verdict.best.period_ms == 500


def test_they_end_when_replicas_show_nothing_new_and_say_what_would_have_been_enough() -> None:
    steady = Incidence(10, {10: 100})
    verdict = next_round(evidence(POOR, steady), Worth(), done=1, limit=9, unused=True, longest_ms=2000)
    assert verdict.action is Action.STOP
    assert "0.0 new functions expected" in verdict.reason
    assert "1 and 0.5 are wanted" in verdict.reason


def test_the_same_one_is_looked_at_for_longer_when_its_own_windows_still_show_new_functions() -> None:
    # Ten sessions brought 60 functions that no other had; the newest still had some of each window for itself.
    sessions, windows = Incidence(10, {1: 60, 2: 1, 10: 500}), Incidence(10, {1: 200, 2: 100, 10: 200})
    verdict = next_round(evidence(sessions, windows), Worth(), done=1, limit=9, unused=True, longest_ms=2000)
    assert verdict.action is Action.LONGER
    assert verdict.best is not None
    assert (verdict.best.period_ms, verdict.best.size_bytes) == (1000, 2 << 20)
    # Of what twenty more windows show, what no session has seen: all but the 61 that only others have.
    own = expected_new(windows, 20)
    assert verdict.best.new_functions == pytest.approx(own * 1620 / (1620 + 61))


def test_the_longest_period_is_never_exceeded() -> None:
    (replica,) = options(evidence(RICH), longest_ms=500)
    assert (replica.action, replica.period_ms) == (Action.REPLICA, 500)
    assert [option.period_ms for option in options(evidence(RICH), longest_ms=750)] == [500, 750]


def test_it_is_said_whether_another_replica_is_meant_or_another_time() -> None:
    verdicts = [
        next_round(evidence(RICH), Worth(), done=1, limit=9, unused=unused, longest_ms=500) for unused in (True, False)
    ]
    assert [verdict.reason.partition(":")[0] for verdict in verdicts] == ["another replica", "another time"]


def test_as_many_rounds_as_asked_for_are_enough() -> None:
    verdict = next_round(evidence(RICH), Worth(), done=9, limit=9, unused=True, longest_ms=2000)
    assert verdict.action is Action.STOP
    assert "9 rounds" in verdict.reason


def test_after_one_session_its_own_windows_say_whether_a_second_pays() -> None:
    alone = Incidence(1, {1: 100})
    busy = next_round(evidence(alone), Worth(), done=1, limit=9, unused=True, longest_ms=500)
    assert busy.action is Action.REPLICA
    steady = evidence(alone, Incidence(10, {10: 100}))
    assert next_round(steady, Worth(), done=1, limit=9, unused=True, longest_ms=500).action is Action.STOP


@given(st.floats(0, 1e6), st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_what_costs_more_is_never_worth_more(wanted: float, size: int, more: int) -> None:
    worth = Worth(functions_per_mib=wanted)

    def goes_on(size_bytes: int) -> bool:
        known = evidence(RICH, size=size_bytes)
        return next_round(known, worth, done=1, limit=9, unused=True, longest_ms=2000).action is not Action.STOP

    assert goes_on(size) or not goes_on(size + more)
