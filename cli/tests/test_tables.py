"""Answers of any size, some rows at a time."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from permille.cli.rendering.answer_json import answer_json, plain
from permille.cli.tables import Answer
from permille.mesh.errors import InvalidArgument


def answer(*batches: pa.RecordBatch) -> Answer:
    stream: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(1 << 10)  # noqa: SIM115
    written = io.BytesIO()
    with pa.ipc.new_stream(written, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream.write(written.getvalue())
    return Answer(stream, truncated=False)


def test_an_answer_is_read_some_rows_at_a_time_however_it_was_sent() -> None:
    names = [f"function {number}" for number in range(10_000)]
    batches = [pa.record_batch({"n": list(range(begin, begin + 10_000)), "name": names}) for begin in (0, 10_000)]
    found = answer(*batches)
    assert max(len(block[0]) for block in found.blocks()) < 5_000
    # As often as somebody asks.
    for _ in range(2):
        assert [number for block in found.blocks() for number in block[0]] == list(range(20_000))
    assert (found.columns, found.rows[-1]) == (["n", "name"], {"n": 19_999, "name": names[-1]})


def test_times_are_told_in_one_way_wherever_in_the_answer_they_need_it() -> None:
    times = pa.timestamp("ns")
    batches = [pa.record_batch({"t": pa.array([nanoseconds], times)}) for nanoseconds in (1_000, 1_001)]
    assert answer(batches[0]).rows == [{"t": datetime(1970, 1, 1, 0, 0, 0, 1)}]  # noqa: DTZ001 - it has no zone
    assert [row["t"] for row in answer(*batches).rows] == [
        "1970-01-01 00:00:00.000001000",
        "1970-01-01 00:00:00.000001001",
    ]


def test_a_time_that_cannot_be_shown_is_told_before_any_row() -> None:
    days = [pa.record_batch({"day": pa.array([day], pa.int32()).cast(pa.date32())}) for day in (1, 1 << 30)]
    with pytest.raises(InvalidArgument, match="'day'"):
        answer(*days).blocks()


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((0, 0, 804_000), "00:00:00.000804"),
        ((0, 0, -5), "-00:00:00.000000005"),
        ((14, 1, 90_061 * 10**9), "14 months 1 day 25:01:01"),
        ((0, 0, 0), "00:00:00"),
    ],
)
def test_intervals_are_text_as_in_duckdb(interval: tuple[int, int, int], text: str) -> None:
    kind = pa.month_day_nano_interval()
    (row,) = answer(pa.record_batch({"i": pa.array([interval], kind)})).rows
    assert plain(row) == {"i": text}


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_the_document_is_laid_out_as_all_others(rows: int) -> None:
    row = [1, 'a\nb "名前"', None, [1, {"x": []}], {}, float("inf"), 1.5]
    columns = [f"column {number}" for number in range(len(row))]
    blocks = [[[value] for value in row]] * rows
    whole = {
        "columns": columns,
        "rows": [plain(dict(zip(columns, row, strict=True)))] * rows,
        "truncated": True,
    }
    assert "".join(answer_json(columns, blocks, True)) == json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def test_the_document_is_written_as_rows_come() -> None:
    def blocks() -> Iterator[list[list[Any]]]:
        yield [[1]]
        pytest.fail("the first row was not written yet")

    written = ""
    for piece in answer_json(["n"], blocks(), False):
        written += piece
        if '"n": 1' in written:
            return
