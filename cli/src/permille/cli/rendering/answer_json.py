"""The answer of a query for programs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from pyarrow import MonthDayNano

_INDENT = 2
_ENCODER = json.JSONEncoder(ensure_ascii=False, indent=_INDENT)


def answer_json(columns: Sequence[str], blocks: Iterable[Sequence[Sequence[Any]]], truncated: bool) -> Iterator[str]:
    """One document with `columns`, `rows` and `truncated`, in pieces: laid out as `json.dumps` does all that a command
    prints.

    `blocks`: some rows at a time, as columns.
    """
    yield f'{{\n  "columns": {_nested(columns, 1)},\n  "rows": ['
    between = ""
    for block in blocks:
        for row in zip(*block, strict=True):
            yield f"{between}\n    {_nested(plain(dict(zip(columns, row, strict=True))), 2)}"
            between = ","
    end = "\n  ]" if between else "]"
    yield f'{end},\n  "truncated": {_nested(truncated, 1)}\n}}\n'


def plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, MonthDayNano):
        return _interval(value)
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _scalar(value)


def _interval(value: MonthDayNano) -> str:
    """As DuckDB writes them, `1 month 2 days 00:00:00.000804`, but for years."""
    parts = [
        f"{number} {unit}{'s' * (abs(number) != 1)}" for number, unit in zip(value, ("month", "day"), strict=False)
    ]
    seconds, rest_ns = divmod(abs(value.nanoseconds), 1_000_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if rest_ns:
        clock += f".{rest_ns:09}".removesuffix("000")
    signed = f"-{clock}" if value.nanoseconds < 0 else clock
    return " ".join([*(part for part in parts if not part.startswith("0 ")), signed])


def _scalar(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else value


def _nested(value: Any, depth: int) -> str:
    # No text has an end of a line in it, which JSON writes out.
    return _ENCODER.encode(value).replace("\n", "\n" + " " * _INDENT * depth)
