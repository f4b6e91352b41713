from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.allocator.domain.learned import NARROWEST, WIDEST, CoreObservation, Rate, learn

MIB = 1 << 20
observations = st.lists(
    st.builds(CoreObservation, st.integers(0, 63), st.floats(0, 1e6), st.integers(0, 2**40), st.booleans()), max_size=8
)


@given(st.none() | st.builds(Rate, st.floats(0, 1e9), st.floats(0, 1), st.integers(0, 9)), observations)
def test_what_is_learned_is_a_rate_with_a_bounded_spread(known: Rate | None, session: list[CoreObservation]) -> None:
    learned = learn(known, session)
    if learned is None or learned == known:
        return
    assert learned.bytes_per_busy_second >= 0
    assert learned.sessions == 1 + (known.sessions if known else 0)
    if any(core.run_ms >= 5 and not core.full for core in session):
        assert NARROWEST <= learned.spread <= WIDEST


def test_the_first_session_is_the_rate_of_its_cores_together() -> None:
    learned = learn(None, [CoreObservation(0, 100, 10 * MIB), CoreObservation(1, 300, 30 * MIB)])
    assert learned == Rate(100 * MIB, NARROWEST, 1)


def test_a_measured_rate_replaces_an_assumed_one() -> None:
    learned = learn(Rate(256 * MIB), [CoreObservation(0, 100, MIB)])
    assert learned is not None
    assert learned.bytes_per_busy_second == 10 * MIB


def test_later_sessions_count_more_than_earlier_ones() -> None:
    known: Rate | None = None
    for rate in (10, 10, 10, 10, 40, 40, 40, 40):
        known = learn(known, [CoreObservation(0, 1000, rate * MIB)])
    assert known is not None
    assert 30 * MIB < known.bytes_per_busy_second < 40 * MIB
    assert known.sessions == 8


def test_cores_that_differ_widen_the_spread() -> None:
    alike = learn(None, [CoreObservation(0, 100, 10 * MIB), CoreObservation(1, 100, 10 * MIB)])
    apart = learn(None, [CoreObservation(0, 100, 5 * MIB), CoreObservation(1, 100, 15 * MIB)])
    assert alike is not None
    assert apart is not None
    assert apart.spread == pytest.approx(0.5)
    assert alike.spread < apart.spread


def test_a_full_buffer_can_raise_the_rate_but_never_lowers_it() -> None:
    known = Rate(100 * MIB, 0.2, 3)
    raised = learn(known, [CoreObservation(0, 100, 20 * MIB, full=True)])
    kept = learn(known, [CoreObservation(0, 100, 5 * MIB, full=True)])
    assert raised == Rate(200 * MIB, 0.2, 4)
    assert kept == Rate(100 * MIB, 0.2, 4)


def test_full_buffers_alone_never_replace_an_assumption() -> None:
    # 4 MiB that were full long before the ten seconds of the session were over.
    session = [CoreObservation(core, 10_000, 4 * MIB, full=True) for core in range(2)]
    assert learn(None, session) is None
    assert learn(Rate(256 * MIB), session) == Rate(256 * MIB)
    assert learn(None, [*session, CoreObservation(2, 100, 20 * MIB)]) == Rate(200 * MIB, NARROWEST, 1)


def test_a_moment_of_run_time_says_nothing() -> None:
    assert learn(None, [CoreObservation(0, 1, MIB)]) is None
    assert learn(Rate(1.0), []) == Rate(1.0)
