"""Which columns a table shows and how wide they are: the one rule of all tables.

Where output has no edge, as in a pipe, all of it stands whole on one line for each row. A terminal that is too narrow
folds texts first, then columns go, the least important first; ids and numbers are never narrowed. Lines are longer than
the terminal where that is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

# The width of output that has no edge.
UNBOUNDED = 1 << 20
GAP = "  "
# What is longer moves the rest of its row: one long name does not make every line as long.
_LONGEST_ALIGNED = 160


@dataclass(frozen=True)
class Column:
    """One column of a table.

    `right`: whether it ends at its right edge. `least`: a text, which may be folded to so many cells; 0: never.
    `rank`: of the columns that have one the highest goes first; those of 0 stay.
    """

    head: str
    right: bool = False
    least: int = 0
    rank: int = 0


def number(head: str, rank: int = 0) -> Column:
    """A column of numbers."""
    return Column(head, right=True, rank=rank)


@dataclass(frozen=True)
class Layout:
    """The columns that are shown, by number, and how wide each is; whether longer cells are folded."""

    shown: list[int]
    widths: list[int]
    folded: bool


def laid_out(columns: Sequence[Column], widest: Sequence[int], room: int) -> Layout:
    """`widest`: the widest cell of each column; `room`: the width of a line. All in cells of a terminal."""
    wanted = [max(cell_len(column.head), most) for column, most in zip(columns, widest, strict=True)]
    shown = list(range(len(columns)))
    if room >= UNBOUNDED:
        return Layout(shown, [min(width, _LONGEST_ALIGNED) for width in wanted], folded=False)
    narrowest = [
        min(width, max(column.least, cell_len(column.head))) if column.least else width
        for column, width in zip(columns, wanted, strict=True)
    ]
    for leaving in sorted((one for one in shown if columns[one].rank), key=lambda one: -columns[one].rank):
        if _line(narrowest, shown) > room:
            shown.remove(leaving)
    # The widest texts are narrowed to one width.
    most = min(max((wanted[one] for one in shown), default=0), room)
    widths = wanted
    while most and _line(widths, shown) > room:
        most -= 1
        widths = [max(least, min(width, most)) for least, width in zip(narrowest, wanted, strict=True)]
    return Layout(shown, [widths[one] for one in shown], folded=True)


def left_out_text(columns: Sequence[Column], layout: Layout) -> str:
    """Says which columns have no room; "" where all have."""
    missing = [column.head for nth, column in enumerate(columns) if nth not in layout.shown]
    return f"no room for {', '.join(missing)}: `| less -S` shows all" if missing else ""


def _line(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[one] for one in shown) + len(GAP) * (len(shown) - 1)
