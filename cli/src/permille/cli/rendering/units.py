"""Numbers as people read them, and quantities as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from permille.mesh.errors import InvalidArgument

_DURATION_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0, "min": 60_000.0, "h": 3.6e6, "d": 86.4e6}
_RETENTION_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
# As the API has them.
_LONGEST_PERIOD_MS = 60_000
_LONGEST_RETENTION_S = (1 << 32) - 1
_SIZE_END = 1 << 63
_SIZE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50, "e": 1 << 60}


def parse_duration_ms(text: str) -> int:
    """`500ms`, `1.5s`, `1m` as milliseconds. Raises `InvalidArgument`, also below 1 ms and above a minute."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|min|h|d)", text.strip())
    period_ms = float(found[1]) * _DURATION_MS[found[2]] if found else 0.0
    if period_ms < 1:
        raise InvalidArgument(
            f"{text!r} is no duration of a millisecond or more",
            reason="DURATION",
            help="write one number and its unit: 500ms, 1.5s, 1m",
            metadata={"value": text},
        )
    if period_ms > _LONGEST_PERIOD_MS:
        raise InvalidArgument(
            f"{text!r} is a longer duration than can be recorded",
            reason="PERIOD_OUT_OF_RANGE",
            help=f"choose 1ms to {_LONGEST_PERIOD_MS // 1000}s; record again for more",
            metadata={"value": text},
        )
    return round(period_ms)


def parse_retention_s(text: str) -> int:
    """`12h`, `7d`, `1.5w` as seconds. Raises `InvalidArgument`, also for less than a second."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d|w)", text.strip())
    # Compared before it is rounded: very many digits are an infinite number, which has no whole one.
    retention_s = float(found[1]) * _RETENTION_S[found[2]] if found else 0.0
    if not 1 <= retention_s <= _LONGEST_RETENTION_S:
        raise InvalidArgument(
            f"{text!r} is not how long a recording can be kept: a second to"
            f" {_LONGEST_RETENTION_S // _RETENTION_S['d']:,} days",
            reason="RETENTION",
            help="write a number and its unit: 30m, 12h, 7d, 4w; without --keep the mesh's setting holds",
            metadata={"value": text},
        )
    return round(retention_s)


def parse_size(text: str) -> int:
    """`64MiB`, `64M`, `1GiB`, `4096` as bytes; all units are powers of 1024. Raises `InvalidArgument`."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtpe]?)(?:i?b)?", text.strip().lower())
    size = float(found[1]) * _SIZE[found[2]] if found else 0.0
    if not 1 <= size < _SIZE_END:
        raise InvalidArgument(
            f"{text!r} is no size: a byte to less than {_SIZE_END >> 60} EiB",
            reason="SIZE",
            help="write bytes or a number with its unit: 64MiB, 1GiB",
            metadata={"value": text},
        )
    return int(size)


def size(count: float) -> str:
    """Bytes in the largest fitting unit: `12.3 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        digits = 0 if unit == "B" else 1
        if abs(round(value, digits)) < 1024:
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(ns: float) -> str:
    """Nanoseconds in the largest fitting unit: `1.23 ms`."""
    value = float(ns)
    for unit in ("ns", "µs", "ms"):
        digits = 0 if unit == "ns" else 2
        if abs(round(value, digits)) < 1000:
            return f"{value:.{digits}f} {unit}"
        value /= 1000
    return f"{value:.2f} s"


def retention(seconds: int) -> str:
    """In the largest unit that makes it a whole number: `7 d`."""
    unit = next(unit for unit in ("d", "h", "min", "s") if seconds % _RETENTION_S[unit] == 0)
    return f"{seconds // _RETENTION_S[unit]:,} {unit}"


def count(number: int) -> str:
    """With thousands apart: `1,234,567`."""
    return f"{number:,}"


def share(part: float, whole: float) -> str:
    """As percent: `12.3 %`; empty when there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def moment(ns: int) -> str:
    """Unix nanoseconds as UTC to the millisecond."""
    if ns <= 0:
        return ""
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d}"
