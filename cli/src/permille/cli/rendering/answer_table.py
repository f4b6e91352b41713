"""The answer of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from permille.cli.rendering.answer_json import plain
from permille.cli.rendering.plain_table import column_widths, plain_table
from permille.cli.rendering.table_layout import Column, laid_out
from permille.cli.rendering.terminal_text import escaped
from rich.console import Console

# Of texts that are folded.
_NARROWEST = 8
# Some rows at a time, as columns.
Blocks = Callable[[], Iterable[Sequence[Sequence[Any]]]]


def print_answer(console: Console, columns: Sequence[str], blocks: Blocks) -> None:
    """Numbers to the right, the rest to the left; nothing is rounded or left out. A terminal folds long texts.

    `blocks` is read twice, first for the columns' widths.
    """
    widths, right = [0] * len(columns), [False] * len(columns)
    for block in blocks():
        widths = [max(pair) for pair in zip(widths, column_widths(_cells(block)), strict=True)]
        right = [known or any(map(_is_number, column)) for known, column in zip(right, block, strict=True)]
    shown = [
        Column(escaped(name), is_right, least=0 if is_right else _NARROWEST)
        for name, is_right in zip(columns, right, strict=True)
    ]
    pieces = plain_table(shown, map(_cells, blocks()), laid_out(shown, widths, console.width))
    console.out(next(pieces), style="bold", highlight=False)
    for piece in pieces:
        console.out(piece, highlight=False)


def _cells(block: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [[escaped(_text(value)) for value in column] for column in block]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # JSON alone has no such numbers.
    return str(value) if isinstance(value, float) else str(plain(value))
