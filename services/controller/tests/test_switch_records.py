from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain.node_use.core_observations import CoreWritten, observations
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_records import (
    IN,
    OUT,
    RECORD,
    Anchors,
    SwitchRecord,
    in_time_order,
    pack,
    parse,
    read,
    records_of,
    to_tsc,
)

U32 = st.integers(0, 2**32 - 1)
RECORDS = st.lists(st.builds(SwitchRecord, st.integers(0, 2**62), U32, U32, U32, st.integers(0, 1)))
# CLOCK_MONOTONIC of a hundred days, so that its TSC has 64 bits.
SESSION = st.lists(st.builds(SwitchRecord, st.integers(0, 2**53), U32, U32, U32, st.integers(0, 1)))
CORES, BATCH, ROUNDS = 8, 50, 500


def ordered(content: bytes) -> list[SwitchRecord]:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        return list(records_of(in_time_order(Path(file.name))))


@given(RECORDS, st.binary(max_size=23))
def test_a_file_gives_back_its_records_and_no_torn_one(records: list[SwitchRecord], torn: bytes) -> None:
    assert len(pack(records)) == 24 * len(records)
    assert parse(pack(records) + torn) == records


@given(RECORDS, st.integers(1, 9), st.binary(max_size=23))
def test_whatever_order_a_file_has_its_records_come_sorted_and_those_of_one_time_as_they_stood(
    records: list[SwitchRecord], piece: int, torn: bytes
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switch_records, "PIECE_BYTES", piece * RECORD.size)
        coarse = [record._replace(time=record.time % 4) for record in records]
        for content in (records, coarse):
            assert ordered(pack(content) + torn) == sorted(content, key=lambda record: record.time)


def test_a_file_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    assert list(in_time_order(tmp_path / "none")) == []
    assert switch_records.count(tmp_path / "none") == 0


def as_the_kernel_hands_them_over() -> Iterator[bytes]:
    """In each round those of the last few ms, core by core."""
    for begin in range(ROUNDS):
        for core in range(CORES):
            times = [(begin * BATCH + index) * 1000 + core for index in range(BATCH)]
            yield pack(SwitchRecord(time, core, 7, 7, (OUT, IN)[index % 2]) for index, time in enumerate(times))


def test_the_memory_that_ordering_and_observing_take_does_not_grow_with_the_records(tmp_path: Path) -> None:
    collected, stored = tmp_path / "collected", tmp_path / "stored"
    with collected.open("wb") as file:
        file.writelines(as_the_kernel_hands_them_over())
    tracemalloc.start()
    try:
        with stored.open("wb") as file:
            file.writelines(to_tsc(in_time_order(collected), Anchors(0, 0, 1000, 1000)))
        ordering = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        written = {core: CoreWritten(1, full=False) for core in range(CORES)}
        seen = observations(written, read(stored), 0, ROUNDS * BATCH * 1000, ticks_per_ms=1_000_000)
        observing = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    records = ROUNDS * CORES * BATCH
    assert stored.stat().st_size == collected.stat().st_size == records * RECORD.size
    assert len(seen) == CORES and all(one.run_ms == pytest.approx(ROUNDS * BATCH / 2 / 1000) for one in seen)
    # As bytes they have 24 each, as objects 150 and more.
    print(f"{records} records: {ordering / records:.0f} bytes each to order, {observing / records:.0f} to observe")
    assert max(ordering, observing) < 48 * records


@given(SESSION, st.integers(10**7, 10**10), st.integers(1, 10**10))
def test_stamping_keeps_every_record(records: list[SwitchRecord], ns: int, ticks: int) -> None:
    stamped = list(records_of(to_tsc([pack(records)], Anchors(10**12, 0, 10**12 + ticks, ns))))
    assert [record[1:] for record in stamped] == [record[1:] for record in records]


def test_the_anchors_are_on_the_line_and_the_line_goes_on() -> None:
    anchors = Anchors(1000, 50, 4000, 1050)
    assert [anchors.tsc_at(ns) for ns in (50, 550, 1050, 2050)] == [1000, 2500, 4000, 7000]


def test_a_record_from_before_the_counter_is_left_out() -> None:
    assert b"".join(to_tsc([pack([SwitchRecord(0, 0, 1, 1, 1)])], Anchors(10, 100, 1010, 200))) == b""
