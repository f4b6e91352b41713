"""Replicas of one binary version run the same code: their sessions put together see more than each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from permille.coverage.domain.profile import Edge, Function, Profile, Totals

# A session that lost most of what was executed says too little to stand for all of it.
_MOST_WEIGHT = 4.0


@dataclass(frozen=True)
class MergedFunction:
    """Totals over all sessions, in how many of them it ran, and its weighted calls and own instructions."""

    totals: Totals
    sessions: int
    weighted_calls: float
    weighted_instructions: float


@dataclass(frozen=True)
class MergedEdge:
    """Calls over all sessions, in how many of them, and the weighted calls."""

    count: int
    sessions: int
    weighted: float


@dataclass(frozen=True)
class Replica:
    """What one session brought: what it saw of everything seen, what others fill in, what only it saw."""

    session: str
    functions: int
    edges: int
    filled_functions: int
    filled_edges: int
    only_here: int
    weight: float
    lost_bytes: int


@dataclass(frozen=True)
class Merged:
    """Several sessions as one. Functions of different builds stay apart: the build id is part of a function."""

    functions: dict[Function, MergedFunction] = field(default_factory=dict)
    edges: dict[Edge, MergedEdge] = field(default_factory=dict)
    replicas: tuple[Replica, ...] = ()


def weight(profile: Profile) -> float:
    """By how much a session's counts are raised for what it lost: executed bytes by recorded bytes, at most 4."""
    if profile.raw_bytes <= 0:
        return 1.0
    return min(_MOST_WEIGHT, (profile.raw_bytes + profile.lost_bytes) / profile.raw_bytes)


def merge(profiles: Sequence[Profile]) -> Merged:
    """Sums over all sessions, a longer one counting for more; a hole in one is filled by what the others ran there."""
    functions: dict[Function, MergedFunction] = {}
    edges: dict[Edge, MergedEdge] = {}
    for profile in profiles:
        factor = weight(profile)
        for function, totals in profile.functions.items():
            before = functions.get(function, MergedFunction(Totals(), 0, 0.0, 0.0))
            functions[function] = MergedFunction(
                before.totals + totals,
                before.sessions + 1,
                before.weighted_calls + factor * totals.calls,
                before.weighted_instructions + factor * totals.self_instructions,
            )
        for edge, count in profile.edges.items():
            known = edges.get(edge, MergedEdge(0, 0, 0.0))
            edges[edge] = MergedEdge(known.count + count, known.sessions + 1, known.weighted + factor * count)
    return Merged(functions, edges, tuple(_replica(profile, functions, edges) for profile in profiles))


def _replica(profile: Profile, functions: dict[Function, MergedFunction], edges: dict[Edge, MergedEdge]) -> Replica:
    return Replica(
        session=profile.session or profile.session_id,
        functions=len(profile.functions),
        edges=len(profile.edges),
        filled_functions=len(functions) - len(profile.functions),
        filled_edges=len(edges) - len(profile.edges),
        only_here=sum(1 for function in profile.functions if functions[function].sessions == 1),
        weight=weight(profile),
        lost_bytes=profile.lost_bytes,
    )
