"""A table of any number of rows, as text without styles: those take a hundred times as long and hold all cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest

from permille.cli.rendering.table_layout import GAP, Column, Layout
from rich.cells import cell_len, chop_cells

# Lines that are written at once.
_LINES = 1 << 10


Block = Sequence[Sequence[str]]


def column_widths(block: Block) -> list[int]:
    """The widest cell of each column."""
    return [max(map(cell_len, column), default=0) for column in block]


def plain_table(columns: Sequence[Column], blocks: Iterable[Block], layout: Layout) -> Iterator[str]:
    """The heads, then pieces of many lines, none with an end. `blocks`: some rows at a time, as columns."""
    right = [columns[one].right for one in layout.shown]
    yield "\n".join(_lines([columns[one].head for one in layout.shown], layout, right))
    shown = ([block[one] for one in layout.shown] for block in blocks)
    rows = (row for block in shown for row in zip(*block, strict=True))
    lines = (line for row in rows for line in _lines(row, layout, right))
    while some := list(islice(lines, _LINES)):
        yield "\n".join(some)


def _lines(row: Sequence[str], layout: Layout, right: Sequence[bool]) -> Iterator[str]:
    folded = [
        chop_cells(text, width) if layout.folded and cell_len(text) > width else [text]
        for text, width in zip(row, layout.widths, strict=True)
    ]
    for parts in zip_longest(*folded, fillvalue=""):
        cells = zip(parts, layout.widths, right, strict=True)
        yield GAP.join(_padded(text, width, is_right) for text, width, is_right in cells).rstrip()


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - cell_len(text))
    return room + text if right else text + room
