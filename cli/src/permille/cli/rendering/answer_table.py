"""The answer of a query."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice, zip_longest
from typing import Any

from permille.cli.rendering.terminal_text import escaped
from rich.cells import cell_len, chop_cells
from rich.console import Console

# Lines that are written at once.
_LINES = 1 << 10
_GAP = "  "
# Of a column that is narrowed.
_NARROWEST = 8


def print_answer(console: Console, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Numbers to the right, the rest to the left; nothing is rounded. What is too long for its column is folded."""
    cells = [[escaped(_text(row[name])) for row in rows] for name in columns]
    heads = [escaped(name) for name in columns]
    right = [any(_is_number(row[name]) for row in rows) for name in columns]
    widths = [max(map(cell_len, (head, *column))) for head, column in zip(heads, cells, strict=True)]
    widths = _fitting(widths, console.width - len(_GAP) * (len(columns) - 1))
    console.out("\n".join(_lines(heads, widths, right)), style="bold", highlight=False)
    lines = (line for row in zip(*cells, strict=True) for line in _lines(row, widths, right))
    while some := list(islice(lines, _LINES)):
        console.out("\n".join(some), highlight=False)


def _fitting(widths: Sequence[int], room: int) -> list[int]:
    """The widest columns are narrowed to one width, until all have room; more columns than that make longer lines."""
    most = max(min(max(widths, default=0), room), _NARROWEST)
    while most > _NARROWEST and sum(min(width, most) for width in widths) > room:
        most -= 1
    return [min(width, most) for width in widths]


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """Whole lines: rich's own tables take a hundred times as long and hold all rows."""
    folded = [
        [text] if cell_len(text) <= width else chop_cells(text, width) for text, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*folded, fillvalue=""):
        cells = zip(parts, widths, right, strict=True)
        yield _GAP.join(_padded(text, width, is_right) for text, width, is_right in cells).rstrip()


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - cell_len(text))
    return room + text if right else text + room


def plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # JSON alone has no such numbers.
    return str(value) if isinstance(value, float) else str(plain(value))
