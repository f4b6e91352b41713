"""Files of calls, as everybody reads them."""

from __future__ import annotations

import io
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from permille.decoder.domain.core_timeline import CoreTimeline
from permille.decoder.domain.manifest import Clock
from permille.decoder.domain.segment_rows import ns_of
from permille.decoder.domain.table_part import stored_schema
from permille.ptcore import CallsFile, Column

U64, FLAG_BITS = (1 << 64) - 1, (1, 2 | 16, 4, 8)
FLAGS = ("begin_truncated", "end_truncated", "tail_call", "asynchronous")
NUMBERS = ("call", "parent", "start_tsc", "end_tsc", "instructions", "instructions_total")
CLOCK = Clock(tsc0=1000, ns0=1_800_000_000_000_000_000, tsc1=4000, ns1=1_800_000_000_000_001_001)
FUNCTIONS = [(7, "main", "a.c", 3), (-5, "main", "b.c", 3), (9, "std::size()", "a.c", 4), (2**31 - 1, "é", "", 0)]
ORIGIN, FIRST_TSC, ANYWHERE = (3, 70, 71), 990, CoreTimeline()


def columns(rows: list[dict[str, int]]) -> dict[str, Column]:
    numbers = {name: Column(array("Q", [row[name] for row in rows])) for name in NUMBERS}
    narrow = {name: Column(array("I", [row[name] for row in rows])) for name in ("depth", "function")}
    return numbers | narrow | {"flags": Column(array("B", [row["flags"] for row in rows]))}


def written(groups: Iterable[list[list[dict[str, int]]]], timeline: CoreTimeline = ANYWHERE) -> bytes:
    """A file of row groups, each of some segments' calls; the functions have other places in each segment."""
    file = CallsFile(1)
    data = b""
    for group in groups:
        for number, rows in enumerate(group):
            places = array("i", [(place + number) % len(FUNCTIONS) for place in range(len(FUNCTIONS))])
            clock = (FIRST_TSC, CLOCK.tsc0, CLOCK.ns0, CLOCK.ns_per_tick)
            file.add(columns(rows), places, ORIGIN, clock, timeline.buffers)
        told = [FUNCTIONS[place] for place in file.functions]
        data += bytes(file.group(*map(list, zip(*told, strict=True))))
    data += bytes(file.finish())
    assert file.rows == sum(len(rows) for group in groups for rows in group)
    return data


def expected(rows: list[dict[str, int]], shift: int, timeline: CoreTimeline) -> list[dict[str, Any]]:
    first = pa.scalar(FIRST_TSC, pa.int64())
    times = [ns_of(pa.array([row[name] for row in rows], pa.uint64()), CLOCK, first) for name in NUMBERS[2:4]]
    found = []
    for row, start, end in zip(rows, *(column.to_pylist() for column in times), strict=True):
        function, name, file, line = FUNCTIONS[(row["function"] + shift) % len(FUNCTIONS)]
        values = dict(zip(("segment", "pid", "tid"), ORIGIN, strict=True)) | {
            "call": signed(row["call"]),
            "parent": signed(row["parent"]),
            "start_ns": start,
            "end_ns": end,
            "depth": row["depth"],
            "core": timeline.cores[bisect_right(timeline.times, row["start_tsc"])],
            "function": function,
            "name": name,
            "file": file,
            "line": line,
            "self_instructions": signed(row["instructions"]),
            "total_instructions": signed(row["instructions_total"]),
        }
        found.append(values | {name: bool(row["flags"] & bits) for name, bits in zip(FLAGS, FLAG_BITS, strict=True)})
    return found


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def row(number: int, **values: int) -> dict[str, int]:
    """A call of an ordinary trace."""
    known = {"call": (1 << 20) + number, "parent": U64, "start_tsc": 1000 + 3 * number, "end_tsc": 1100 + 3 * number}
    return known | {"instructions": 5, "instructions_total": 9, "depth": 1, "function": number % 4, "flags": 0} | values


anything = st.one_of(st.integers(0, 300), st.integers(0, U64), st.integers(U64 - 300, U64))
ticks = st.one_of(st.just(0), st.integers(900, 1 << 50))
a_row = st.fixed_dictionaries(
    dict.fromkeys(("call", "parent", "instructions", "instructions_total"), anything)
    | dict.fromkeys(("start_tsc", "end_tsc"), ticks)
    | {"depth": st.integers(0, 70_000), "function": st.integers(0, 3), "flags": st.integers(0, 31)}
)
timelines = st.lists(st.tuples(ticks, st.integers(-1, 300)), max_size=4).map(
    lambda moves: CoreTimeline(tuple(sorted(time for time, _ in moves)), (-1, *(core for _, core in moves)))
)


@settings(deadline=None)
@given(st.lists(st.lists(st.lists(a_row, min_size=1, max_size=200), min_size=1, max_size=3), max_size=2), timelines)
def test_every_reader_reads_what_was_written(groups: list[list[list[dict[str, int]]]], timeline: CoreTimeline) -> None:
    data = written(groups, timeline)
    rows = [one for group in groups for shift, rows in enumerate(group) for one in expected(rows, shift, timeline)]
    table = pq.read_table(io.BytesIO(data))
    assert table.schema.equals(stored_schema("calls"))
    assert table.to_pylist() == rows
    as_dictionary = pq.read_table(io.BytesIO(data), read_dictionary=["name", "file"])
    assert as_dictionary.cast(table.schema).equals(table)


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 4096, 300_000])
def test_duckdb_reads_it_too(rows: int, tmp_path: Path) -> None:
    # So many different numbers that they have no places among them any more, and as many that do.
    calls = [
        row(n, instructions=n * 1_000_003 % (1 << 40), instructions_total=n % 60_000, depth=n % 300)
        for n in range(rows)
    ]
    path = tmp_path / "calls.parquet"
    path.write_bytes(written([[calls[: rows // 2], calls[rows // 2 :]], [calls]] if rows > 1 else [[calls]]))
    table = pq.read_table(path)
    with duckdb.connect() as connection:
        found: Any = connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
        names = connection.execute(f"SELECT name, count(*) FROM read_parquet('{path}') GROUP BY ALL").fetchall()
        some = f"SELECT count(*) FROM read_parquet('{path}') WHERE file = 'b.c' AND NOT tail_call"
        of_file = connection.execute(some).fetchone()
    assert found.cast(table.schema).equals(table)
    told: list[Any] = table["name"].to_pylist()
    assert dict(names) == {name: told.count(name) for name in set(told)}
    assert of_file == (table["file"].to_pylist().count("b.c"),)
    assert set(table["self_instructions"].to_pylist()) == {one["instructions"] for one in calls}


def test_what_does_not_fit_is_refused() -> None:
    file = CallsFile(1)
    whole, clock, places = columns([row(0), row(1)]), (1, 1, 0, 1.0), array("i", range(4))
    timeline = CoreTimeline().buffers
    with pytest.raises(ValueError, match="one length"):
        file.add(whole | {"flags": Column(array("B", [0]))}, places, ORIGIN, clock, timeline)
    with pytest.raises(ValueError, match="not known"):
        file.add(whole, array("i", [0]), ORIGIN, clock, timeline)
    with pytest.raises(TypeError, match="column call has a width of 32 bits in place of 64"):
        file.add(whole | {"call": whole["depth"]}, places, ORIGIN, clock, timeline)
    with pytest.raises(ValueError, match="column depth is missing"):
        file.add({name: column for name, column in whole.items() if name != "depth"}, places, ORIGIN, clock, timeline)
    with pytest.raises(ValueError, match="first of which is 0"):
        file.add(whole, places, ORIGIN, clock, (array("Q", [5]), array("i", [0])))
    file.add(whole, places, ORIGIN, clock, timeline)
    with pytest.raises(ValueError, match="2 functions"):
        file.group([1], ["a"], ["b"], [0])
