"""Lines of which many are alike, as those of missing files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_MOST_ALIKE = 20
# What lines that are alike differ in: files, build ids, addresses, numbers.
_OWN = re.compile(r"/\S+|\b(?:0x)?[0-9a-f]{6,}\b|\d+")


def without_most_alike(lines: Iterable[str], way_out: str) -> list[str]:
    """The first 20 that are alike, and at the end how many others there are; `way_out`: what lists them."""
    alike: Counter[str] = Counter()
    first: dict[str, str] = {}
    shown = []
    for line in lines:
        kind = _kind(line)
        alike[kind] += 1
        if alike[kind] <= _MOST_ALIKE:
            shown.append(line)
            first.setdefault(kind, line)
    more = {kind: number - _MOST_ALIKE for kind, number in alike.items() if number > _MOST_ALIKE}
    return shown + [f"and {number:,} more as {first[kind]!r}: {way_out}" for kind, number in more.items()]


def _kind(line: str) -> str:
    name, colon, reason = line.partition(": ")
    return _OWN.sub("", reason if colon else name)
