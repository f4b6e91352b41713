"""On which core a thread was."""

from __future__ import annotations

import struct
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st
from permille.decoder.domain.core_timeline import CoreTimeline, core_timelines


def records(*switches: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<QIIII", tsc, cpu, 7, tid, operation) for tsc, cpu, tid, operation in switches)


def at(timeline: CoreTimeline, starts: list[int]) -> list[int]:
    times, cores = timeline.buffers
    return [cores[bisect_right(times, start) - 1] for start in starts]


def test_a_thread_is_where_it_came_in_until_it_leaves() -> None:
    timeline = core_timelines(records((10, 2, 70, 1), (20, 2, 70, 0), (30, 5, 70, 1), (15, 1, 71, 1)))[7, 70]
    assert at(timeline, [0, 9, 10, 19, 20, 29, 30, 1000]) == [-1, -1, 2, 2, -1, -1, 5, 5]


def test_a_stay_lasts_until_the_thread_comes_to_another_core() -> None:
    switches = ((10, 2, 70, 1), (20, 2, 70, 0), (30, 2, 70, 1), (40, 2, 70, 0), (50, 5, 70, 1), (60, 5, 70, 0))
    timeline = core_timelines(records(*switches))[7, 70]
    assert at(timeline.stays, [0, 9, 10, 25, 45, 49, 50, 60, 1000]) == [2, 2, 2, 2, 2, 2, 5, 5, 5]


def test_a_thread_that_leaves_first_was_there_from_the_beginning() -> None:
    assert at(core_timelines(records((10, 2, 70, 0)))[7, 70], [0, 10]) == [2, -1]


def test_no_records_no_cores() -> None:
    assert core_timelines(b"") == {}
    assert at(CoreTimeline(), [1, 2]) == [-1, -1]


def test_half_a_record_is_left_out() -> None:
    assert core_timelines(records((10, 2, 70, 0))[:-1]) == {}


def test_records_of_what_no_system_has_are_left_out() -> None:
    odd = records((10, 1 << 31, 70, 1), (20, 2, 1 << 31, 1), (30, 3, 71, 1))
    assert set(core_timelines(odd)) == {(7, 71)}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3))), st.lists(st.integers(0, 120)))
def test_each_start_has_the_core_of_the_last_switch(moves: list[tuple[int, int]], starts: list[int]) -> None:
    moves, starts = sorted(moves), sorted(starts)
    timelines = core_timelines(records(*((tsc, cpu, 70, 1) for tsc, cpu in moves)))
    expected = []
    for start in starts:
        before = [cpu for tsc, cpu in moves if tsc <= start]
        expected.append(before[-1] if before else -1)
    assert at(timelines.get((7, 70), CoreTimeline()), starts) == expected
