"""How well one profile tells what another one, the truth, says."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
# The L1 distance of two distributions without anything in common.
MAX_ERROR = 2.0


def shares(counts: Mapping[_Key, float]) -> dict[_Key, float]:
    """A distribution: the counts' shares of their sum; empty when nothing was counted."""
    whole = sum(counts.values())
    return {key: count / whole for key, count in counts.items() if count} if whole else {}


def error(found: Mapping[_Key, float], truth: Mapping[_Key, float]) -> float:
    """L1 distance of the two distributions of executed functions, 0 to 2; nothing found is as wrong as can be."""
    one, other = shares(found), shares(truth)
    if not one or not other:
        return 0.0 if one == other else MAX_ERROR
    return sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


def accuracy(found: Mapping[_Key, float], truth: Mapping[_Key, float]) -> float:
    """(max error - error) / max error, as published for this kind of tracing: 1 is the truth, 0 has nothing of it."""
    # Sums of shares are off by some 1e-16.
    return max(0.0, (MAX_ERROR - error(found, truth)) / MAX_ERROR)
