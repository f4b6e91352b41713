"""A table of any number of rows: rich's own take a hundred times as long and hold all cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest

from rich.cells import cell_len, chop_cells

# Lines that are written at once.
_LINES = 1 << 10
_GAP = "  "
# Of a column that is narrowed.
_NARROWEST = 8


Block = Sequence[Sequence[str]]


def column_widths(block: Block) -> list[int]:
    """The widest cell of each column."""
    return [max(map(cell_len, column), default=0) for column in block]


def plain_table(
    heads: Sequence[str], blocks: Iterable[Block], widths: Sequence[int], right: Sequence[bool], width: int
) -> Iterator[str]:
    """The heads, then pieces of many lines, none with an end. What is too long for its column is folded.

    `blocks`: some rows at a time, as columns; `widths`: the widest cell of each column of all of them; `right`: of a
    column, whether it ends at its right edge. Lines are wider than `width` where columns have no room.
    """
    wanted = [max(cell_len(head), widest) for head, widest in zip(heads, widths, strict=True)]
    widths = _fitting(wanted, width - len(_GAP) * (len(heads) - 1))
    yield "\n".join(_lines(heads, widths, right))
    rows = (row for block in blocks for row in zip(*block, strict=True))
    lines = (line for row in rows for line in _lines(row, widths, right))
    while some := list(islice(lines, _LINES)):
        yield "\n".join(some)


def _fitting(widths: Sequence[int], room: int) -> list[int]:
    """The widest columns are narrowed to one width, until all have room; more columns than that make longer lines."""
    most = max(min(max(widths, default=0), room), _NARROWEST)
    while most > _NARROWEST and sum(min(width, most) for width in widths) > room:
        most -= 1
    return [min(width, most) for width in widths]


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    folded = [
        [text] if cell_len(text) <= width else chop_cells(text, width) for text, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*folded, fillvalue=""):
        cells = zip(parts, widths, right, strict=True)
        yield _GAP.join(_padded(text, width, is_right) for text, width, is_right in cells).rstrip()


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - cell_len(text))
    return room + text if right else text + room
