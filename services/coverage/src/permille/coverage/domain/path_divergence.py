"""Which call paths two sets of sessions took differently often."""

from __future__ import annotations

from permille.coverage.domain.call_paths import MergedPaths
from permille.coverage.domain.divergence import Divergent, Place, Seen, ranked

Way = tuple[Place, ...]


def diverge_paths(a: MergedPaths, b: MergedPaths) -> tuple[list[Divergent[Way]], int]:
    """Ranks paths by their calls as `ranked` does; and how many were left out.

    Left out is a path of one side that the other side may have taken where only its heaviest ones were looked at.
    """
    seen_a, seen_b = _by_place(a), _by_place(b)
    unsure = set[Way]()
    if not b.complete:
        unsure |= seen_a.keys() - seen_b.keys()
    if not a.complete:
        unsure |= seen_b.keys() - seen_a.keys()
    rows = ranked(seen_a, seen_b)
    return [row for row in rows if row.key not in unsure], len(unsure)


def _by_place(merged: MergedPaths) -> dict[Way, Seen]:
    """Calls by path, outermost first, as two builds have it in common."""
    found: dict[Way, Seen] = {}
    ways: list[Way] = []
    for one in merged.paths:
        here = Place(one.function.module, one.function.name)
        way = (*ways[one.above], here) if one.above >= 0 else (here,)
        ways.append(way)
        before = found.get(way, Seen())
        # Of several functions of one name the sessions may be the same.
        found[way] = Seen(before.count + one.calls, max(before.sessions, one.sessions))
    return found
