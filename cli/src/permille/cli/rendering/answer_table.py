"""The answer of a query."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from permille.cli.rendering.table_cell import cell
from rich.table import Table


def answer_table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    """Numbers to the right, the rest to the left; nothing is rounded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        numeric = any(_is_number(row[name]) for row in rows)
        table.add_column(cell(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(_text(row[name])) for name in columns))
    return table


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
