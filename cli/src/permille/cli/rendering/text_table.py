"""A table as commands print it: a title, heads, rows with styles, what is said below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from permille.cli.rendering.plain_table import column_widths, plain_table
from permille.cli.rendering.table_layout import GAP, Column, Layout, laid_out, left_out_text
from permille.cli.rendering.terminal_text import escaped
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

# Of which one takes a fifth of a millisecond.
_MOST_STYLED_ROWS = 1000


class TextTable:
    """Rows as lines of the width that `table_layout` gives them; of very many rows, without styles."""

    def __init__(self, *columns: Column, title: str = "", caption: str | None = None, head_style: str = "dim") -> None:
        self.columns = columns
        self.rows: list[tuple[Text | str, ...]] = []
        self._title = title
        self._caption = caption
        self._head_style = head_style

    def add_row(self, *cells: Text | str) -> None:
        """One cell for each column."""
        self.rows.append(tuple(cell if isinstance(cell, Text) else escaped(cell) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | Segment]:
        block = [[str(cell) for cell in column] for column in zip(*self.rows, strict=True)] or [[]] * len(self.columns)
        layout = laid_out(self.columns, column_widths(block), options.max_width)
        if self._title:
            yield Text(self._title, "bold")
        if len(self.rows) > _MOST_STYLED_ROWS:
            for piece in plain_table(self.columns, [block], layout):
                yield Segment(f"{piece}\n")
        else:
            heads = [Text(column.head, self._head_style) for column in self.columns]
            for row in (heads, *self.rows):
                yield from self._lines(row, layout, console)
        for said in filter(None, (self._caption, left_out_text(self.columns, layout))):
            yield Text(said, "dim italic")

    def _lines(self, row: Sequence[Text | str], layout: Layout, console: Console) -> Iterator[Text]:
        shown = [cell if isinstance(cell, Text) else Text(cell) for cell in (row[one] for one in layout.shown)]
        folded = [
            list(text.wrap(console, width, overflow="fold")) if layout.folded and text.cell_len > width else [text]
            for text, width in zip(shown, layout.widths, strict=True)
        ]
        right = [self.columns[one].right for one in layout.shown]
        for parts in zip_longest(*folded, fillvalue=Text()):
            cells = zip(parts, layout.widths, right, strict=True)
            line = Text(GAP, no_wrap=True, overflow="ignore").join(
                _padded(text, width, is_right) for text, width, is_right in cells
            )
            line.rstrip()
            yield line


def _padded(text: Text, width: int, right: bool) -> Text:
    room = " " * (width - text.cell_len)
    return Text.assemble(room, text) if right else Text.assemble(text, room)
