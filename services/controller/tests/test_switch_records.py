from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain.switches.switch_records import (
    Anchors,
    ClockOffset,
    SwitchRecord,
    error_bound_ns,
    pack,
    parse,
    read_offset,
    realtime,
    to_tsc,
)

U32 = st.integers(0, 2**32 - 1)
RECORDS = st.lists(st.builds(SwitchRecord, st.integers(0, 2**63), U32, U32, U32, st.integers(0, 1)))


@given(RECORDS, st.binary(max_size=23))
def test_a_file_gives_back_its_records_and_no_torn_one(records: list[SwitchRecord], torn: bytes) -> None:
    assert len(pack(records)) == 24 * len(records)
    assert parse(pack(records) + torn) == records


@given(RECORDS, st.integers(-(10**6), 10**6))
def test_stamping_keeps_every_record_in_time_order(records: list[SwitchRecord], slew: int) -> None:
    begin = ClockOffset(0, 10**18, 50)
    end = ClockOffset(10**9, 10**18 + slew, 50)
    anchors = Anchors(0, 10**18 - 10**17, 3 * 10**17, 10**18)
    stamped = to_tsc(records, anchors, begin, end)
    assert [record.time for record in stamped] == sorted(record.time for record in stamped)
    assert sorted(record[1:] for record in stamped) == sorted(record[1:] for record in records)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(-(10**5), 10**5))
def test_a_clock_stepped_anywhere_in_the_session_stays_within_the_bound(moment: int, step_at: int, step: int) -> None:
    begin, end = ClockOffset(0, 5000, 20), ClockOffset(10**9, 5000 + step, 30)
    truth = moment + 5000 + (step if moment >= step_at else 0)
    assert abs(realtime(moment, begin, end) - truth) <= error_bound_ns(begin, end) + 1


def test_the_offset_is_read_between_two_readings_of_the_other_clock() -> None:
    monotonic = iter([0, 1000, *([2000, 2010] * 15)])
    offset = read_offset(lambda: next(monotonic), lambda: 7_000_000)
    assert (offset.offset_ns, offset.error_ns) == (7_000_000 - 2005, 5)


def test_the_offset_of_this_machine_is_known_to_a_few_microseconds() -> None:
    assert 0 <= read_offset().error_ns < 1_000_000
