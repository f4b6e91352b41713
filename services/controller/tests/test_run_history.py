from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain.node_use.run_history import Run, Switch, runs_of, shares_by_slice


def test_arrivals_and_departures_are_stretches() -> None:
    switches = [Switch(10, 0, 7, True), Switch(15, 1, 8, True), Switch(30, 0, 7, False), Switch(40, 1, 8, False)]
    assert list(runs_of(switches, 0, 100)) == [Run(0, 7, 10, 30), Run(1, 8, 15, 40)]


def test_a_core_held_before_and_after_the_records_is_held_from_the_beginning_and_until_the_end() -> None:
    switches = [Switch(10, 0, 7, False), Switch(60, 0, 7, True)]
    assert list(runs_of(switches, 0, 100)) == [Run(0, 7, 0, 10), Run(0, 7, 60, 100)]


def test_an_arrival_whose_departure_was_dropped_ends_at_the_next_arrival() -> None:
    switches = [Switch(10, 0, 7, True), Switch(20, 0, 8, True), Switch(30, 0, 8, False), Switch(40, 0, 9, False)]
    assert list(runs_of(switches, 0, 100)) == [Run(0, 7, 10, 20), Run(0, 8, 20, 30)]


def test_stretches_are_cut_at_the_slices() -> None:
    shares = shares_by_slice([Run(3, 7, 50, 250), Run(3, 7, 290, 900)], 0, 3, 100)
    assert shares == {3: pytest.approx((0.5, 1.0, 0.6))}


@given(st.lists(st.integers(1, 50), min_size=2, max_size=60), st.integers(1, 40), st.integers(1, 12))
def test_no_run_time_within_the_history_is_lost_or_counted_twice(gaps: list[int], slice_ns: int, slices: int) -> None:
    moments = list(itertools.accumulate(gaps))
    runs = [Run(0, 1, begin, end) for begin, end in zip(moments[::2], moments[1::2], strict=False)]
    horizon = slices * slice_ns
    expected = sum(max(0, min(run.end_ns, horizon) - run.begin_ns) for run in runs)
    shares = shares_by_slice(runs, 0, slices, slice_ns).get(0, ())
    assert sum(shares) * slice_ns == pytest.approx(expected)
