"""Losses that reach from one thread's turn on a core into those of others, divided among the threads.

Behind what cannot be decoded the next synchronisation point is looked for, whoever runs until there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.ptcore_columns import numbers_of

if TYPE_CHECKING:
    from permille.decoder.domain.core_segments import Thread, Turn

Columns = dict[str, "pa.Array[Any]"]


@dataclass(frozen=True)
class LossPiece:
    """What a segment has of a loss; `begin` and `size_bytes` within the loss."""

    loss: int
    segment: Segment
    begin: int
    size_bytes: int


class CoreTurns:
    """Whose the bytes of a core's stream are, and by segment how many lost ones went to it, or from it, by division."""

    def __init__(self, turns: Sequence[Turn], segments: Mapping[Thread, Segment]) -> None:
        """`segments`: by thread. What runs without one has no losses of its own."""
        self._begins = [turn[0] for turn in turns]
        self._segments = [segments.get((turn[1], turn[2])) for turn in turns]
        self.moved: Counter[int] = Counter()

    def pieces(self, loss: int, offset: int, size_bytes: int, segment: Segment) -> list[LossPiece]:
        """A loss of the segment, which begins at the offset in the stream; all of it is told, in order."""
        end = offset + size_bytes
        turns = range(bisect_right(self._begins, offset), bisect_left(self._begins, end))
        # Where the loss begins it is the segment's, whoever's turn that is.
        found, whose, since = [], segment, offset
        for turn in turns:
            begin, then = self._begins[turn], self._segments[turn] or segment
            if then is not whose:
                found.append(LossPiece(loss, whose, since - offset, begin - since))
                whose, since = then, begin
        found.append(LossPiece(loss, whose, since - offset, end - since))
        for piece in found:
            if piece.segment is not segment:
                self.moved[piece.segment.index] += piece.size_bytes
                self.moved[segment.index] -= piece.size_bytes
        return [piece for piece in found if piece.size_bytes] or found


def divided(losses: Columns, pieces: Sequence[LossPiece]) -> Columns:
    """Rows of the table `losses` as those of their pieces; time is divided as the bytes are."""
    wanted = ("stream_offset", "size_bytes", "start_ns", "end_ns")
    rows: list[tuple[int, ...]] = list(zip(*(numbers_of(losses[name], "q") for name in wanted), strict=True))
    told = [_row(rows[piece.loss], piece) for piece in pieces]
    numbers = {name: pa.array(column, pa.int64()) for name, column in zip(wanted, zip(*told, strict=True), strict=True)}
    columns = {name: column.take(pa.array([piece.loss for piece in pieces])) for name, column in losses.items()}
    return columns | numbers | {"segment": pa.array([piece.segment.index for piece in pieces], pa.int32())}


def _row(loss: tuple[int, ...], piece: LossPiece) -> tuple[int, ...]:
    offset, size_bytes, start_ns, end_ns = loss
    if piece.size_bytes == size_bytes:
        return loss
    first, last = (
        start_ns + (end_ns - start_ns) * at // size_bytes for at in (piece.begin, piece.begin + piece.size_bytes)
    )
    return offset + piece.begin, piece.size_bytes, first, last
