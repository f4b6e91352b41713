from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain.switches.switch_records import Anchors, SwitchRecord, pack, parse, to_tsc

U32 = st.integers(0, 2**32 - 1)
RECORDS = st.lists(st.builds(SwitchRecord, st.integers(0, 2**62), U32, U32, U32, st.integers(0, 1)))
# CLOCK_MONOTONIC of a hundred days, so that its TSC has 64 bits.
SESSION = st.lists(st.builds(SwitchRecord, st.integers(0, 2**53), U32, U32, U32, st.integers(0, 1)))


@given(RECORDS, st.binary(max_size=23))
def test_a_file_gives_back_its_records_and_no_torn_one(records: list[SwitchRecord], torn: bytes) -> None:
    assert len(pack(records)) == 24 * len(records)
    assert parse(pack(records) + torn) == records


@given(SESSION, st.integers(10**7, 10**10), st.integers(1, 10**10))
def test_stamping_keeps_every_record_in_time_order(records: list[SwitchRecord], ns: int, ticks: int) -> None:
    stamped = parse(to_tsc(pack(records) + b"torn", Anchors(10**12, 0, 10**12 + ticks, ns)))
    assert [record.time for record in stamped] == sorted(record.time for record in stamped)
    assert sorted(record[1:] for record in stamped) == sorted(record[1:] for record in records)


def test_the_anchors_are_on_the_line_and_the_line_goes_on() -> None:
    anchors = Anchors(1000, 50, 4000, 1050)
    assert [anchors.tsc_at(ns) for ns in (50, 550, 1050, 2050)] == [1000, 2500, 4000, 7000]


def test_a_record_from_before_the_counter_is_left_out() -> None:
    assert to_tsc(pack([SwitchRecord(0, 0, 1, 1, 1)]), Anchors(10, 100, 1010, 200)) == b""
