"""Binaries without debug information, in one line."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_NAMED = 3


def undebugged_text(binaries: Iterable[str]) -> str:
    """What is missing of them, the first by name and how many others there are."""
    names = sorted(binaries)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    told = ", ".join(names[:_MOST_NAMED])
    return f"without debug information nothing is known of what was inlined: {told}{more}"
