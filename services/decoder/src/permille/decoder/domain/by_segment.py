"""Rows that come in the order of their segments, divided by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

_Row = TypeVar("_Row")
_NO_MORE: tuple[float, Iterator[tuple[int, object]]] = (math.inf, iter(()))


def by_segment(rows: Iterable[tuple[int, _Row]], segments: Iterable[int]) -> Iterator[Iterator[_Row]]:
    """The rows of each of `segments`, which ascend, as its own; to be read before those of the next one."""
    groups = groupby(rows, itemgetter(0))
    at, found = next(groups, _NO_MORE)
    for segment in segments:
        while at < segment:
            at, found = next(groups, _NO_MORE)
        yield map(itemgetter(1), found) if at == segment else iter(())
