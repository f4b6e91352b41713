"""A loss that reaches into the turns of other threads of the core is divided among them."""

from __future__ import annotations

import pyarrow as pa
from permille.decoder.domain.loss_turns import Columns, CoreTurns, LossPiece, divided
from permille.decoder.domain.manifest import Segment

FIRST, SECOND = (
    Segment(index=index, kind="core", key="k", sha256="0" * 64, pid=7, tid=70 + index, size_bytes=300)
    for index in (0, 1)
)


def turns(*begins: tuple[int, int]) -> CoreTurns:
    """By offset and tid."""
    return CoreTurns([(at, 7, tid, 1, 0, 0) for at, tid in begins], {(7, one.tid): one for one in (FIRST, SECOND)})


def test_a_loss_within_a_turn_is_in_one_piece() -> None:
    core = turns((0, 70), (100, 71))
    assert core.pieces(0, 20, 80, FIRST) == [LossPiece(0, FIRST, 0, 80)]
    assert not core.moved


def test_a_loss_that_reaches_into_other_turns_is_theirs_there() -> None:
    core = turns((0, 70), (100, 71), (150, 70), (400, 71))
    assert core.pieces(3, 80, 120, FIRST) == [
        LossPiece(3, FIRST, 0, 20),
        LossPiece(3, SECOND, 20, 50),
        LossPiece(3, FIRST, 70, 50),
    ]
    assert core.moved == {0: -50, 1: 50}


def test_turns_of_one_thread_one_after_another_are_one() -> None:
    core = turns((0, 70), (10, 70), (100, 71), (110, 71))
    assert core.pieces(0, 0, 120, FIRST) == [LossPiece(0, FIRST, 0, 100), LossPiece(0, SECOND, 100, 20)]


def test_what_ran_without_a_segment_is_left_with_the_thread_that_lost_it() -> None:
    assert turns((0, 70), (100, 99)).pieces(0, 50, 100, FIRST) == [LossPiece(0, FIRST, 0, 100)]


def test_a_loss_of_no_bytes_stays() -> None:
    assert turns((0, 70), (100, 71)).pieces(0, 100, 0, FIRST) == [LossPiece(0, FIRST, 0, 0)]


def test_rows_are_divided_with_their_times() -> None:
    numbers = {"stream_offset": [1080, 5000], "size_bytes": [100, 0], "start_ns": [0, 7], "end_ns": [1000, 9]}
    losses: Columns = {name: pa.array(values, pa.int64()) for name, values in numbers.items()}
    losses |= {"segment": pa.array([0, 0], pa.int32()), "reason": pa.array(["a", "b"])}
    pieces = [LossPiece(0, FIRST, 0, 20), LossPiece(0, SECOND, 20, 80), LossPiece(1, FIRST, 0, 0)]
    rows = pa.table(divided(losses, pieces)).to_pylist()
    assert [(row["segment"], row["stream_offset"], row["size_bytes"]) for row in rows] == [
        (0, 1080, 20),
        (1, 1100, 80),
        (0, 5000, 0),
    ]
    assert [(row["start_ns"], row["end_ns"], row["reason"]) for row in rows] == [
        (0, 200, "a"),
        (200, 1000, "a"),
        (7, 9, "b"),
    ]
