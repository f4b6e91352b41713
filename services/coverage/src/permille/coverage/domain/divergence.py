"""What two sets of sessions did differently, the most telling first.

Each function, and each call of one by another, is held against everything else by the log-likelihood ratio of its two
by two table (G-test, binomial case of Dunning 1993, "Accurate methods for the statistics of surprise and coincidence").
It needs no large counts, unlike chi-square, and grows with how much was seen, unlike a ratio of shares. It ranks; it is
no probability, because the calls of a program do not happen independently. What only one side did comes first where it
is more than a chance call or two (G of at least 10.83).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from permille.coverage.domain.profile import Profile, Totals

_Key = TypeVar("_Key", bound=Hashable)
# Chi-square with one degree of freedom is above this in one of a thousand cases of pure chance.
TELLING = 10.83


class Measure(StrEnum):
    """What a function's share is a share of; of calls between functions it is always calls."""

    INSTRUCTIONS = "INSTRUCTIONS"
    CALLS = "CALLS"


class Place(NamedTuple):
    """A function as two builds have it in common; several of one name in one module count as one."""

    module: str
    name: str


class Way(NamedTuple):
    """A call of one by another."""

    caller: Place
    callee: Place


@dataclass(frozen=True)
class Seen:
    """How much of it, and in how many sessions."""

    count: int = 0
    sessions: int = 0


@dataclass(frozen=True)
class Divergent(Generic[_Key]):
    """One difference. `statistic`: G; shares are of everything counted on that side."""

    key: _Key
    a: Seen
    b: Seen
    share_a: float
    share_b: float
    statistic: float

    @property
    def only_in(self) -> str:
        """`a`, `b`, or "" for both."""
        return "" if self.a.sessions and self.b.sessions else "a" if self.a.sessions else "b"


@dataclass(frozen=True)
class Divergence:
    """All that differs, the most telling first."""

    functions: list[Divergent[Place]]
    ways: list[Divergent[Way]]


def diverge(a: Sequence[Profile], b: Sequence[Profile], measure: Measure = Measure.INSTRUCTIONS) -> Divergence:
    """Ranks functions and calls of two sets of sessions; what has equal shares in both is left out."""
    counted: Callable[[Totals], int] = (
        (lambda totals: totals.calls) if measure is Measure.CALLS else (lambda totals: totals.self_instructions)
    )
    return Divergence(
        ranked(_functions(a, counted), _functions(b, counted)),
        ranked(_ways(a), _ways(b)),
    )


def ranked(a: Mapping[_Key, Seen], b: Mapping[_Key, Seen]) -> list[Divergent[_Key]]:
    """Every key that differs: what is tellingly in one side only, then all others, each by the statistic."""
    whole_a, whole_b = sum(seen.count for seen in a.values()), sum(seen.count for seen in b.values())
    rows = []
    for key in a.keys() | b.keys():
        one, other = a.get(key, Seen()), b.get(key, Seen())
        row = Divergent(
            key,
            one,
            other,
            one.count / whole_a if whole_a else 0.0,
            other.count / whole_b if whole_b else 0.0,
            log_likelihood_ratio(one.count, whole_a, other.count, whole_b),
        )
        if row.statistic > 0 or row.only_in:
            rows.append(row)
    return sorted(rows, key=lambda row: (not (row.only_in and row.statistic >= TELLING), -row.statistic, str(row.key)))


def log_likelihood_ratio(a: int, whole_a: int, b: int, whole_b: int) -> float:
    """G of `a` of `whole_a` against `b` of `whole_b`: 2 sum O ln(O/E) over the four cells; 0 for equal shares."""
    whole = whole_a + whole_b
    if not whole_a or not whole_b:
        return 0.0
    share = (a + b) / whole
    cells = (
        (a, whole_a * share),
        (b, whole_b * share),
        (whole_a - a, whole_a * (1 - share)),
        (whole_b - b, whole_b * (1 - share)),
    )
    # Equal shares differ by rounding alone.
    found = 2 * sum(observed * math.log(observed / expected) for observed, expected in cells if observed and expected)
    return found if a * whole_b != b * whole_a and found > 0 else 0.0


def _functions(profiles: Sequence[Profile], counted: Callable[[Totals], int]) -> dict[Place, Seen]:
    return _seen(
        [[(Place(f.module, f.name), counted(totals)) for f, totals in p.functions.items()] for p in profiles],
    )


def _ways(profiles: Sequence[Profile]) -> dict[Way, Seen]:
    return _seen(
        [
            [
                (Way(Place(e.caller.module, e.caller.name), Place(e.callee.module, e.callee.name)), count)
                for e, count in p.edges.items()
            ]
            for p in profiles
        ]
    )


def _seen(sessions: Sequence[Sequence[tuple[_Key, int]]]) -> dict[_Key, Seen]:
    found: dict[_Key, Seen] = {}
    for rows in sessions:
        here: dict[_Key, int] = {}
        for key, count in rows:
            here[key] = here.get(key, 0) + count
        for key, count in here.items():
            before = found.get(key, Seen())
            found[key] = Seen(before.count + count, before.sessions + 1)
    return found
