"""The answer of a query."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from permille.cli.rendering.plain_table import plain_table
from permille.cli.rendering.terminal_text import escaped
from rich.console import Console


def print_answer(console: Console, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Numbers to the right, the rest to the left; nothing is rounded. What is too long for its column is folded."""
    cells = [[escaped(_text(row[name])) for row in rows] for name in columns]
    heads = [escaped(name) for name in columns]
    right = [any(_is_number(row[name]) for row in rows) for name in columns]
    pieces = plain_table(heads, cells, right, console.width)
    console.out(next(pieces), style="bold", highlight=False)
    for piece in pieces:
        console.out(piece, highlight=False)


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
