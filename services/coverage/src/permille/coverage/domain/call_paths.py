"""Call paths, each once however often it was taken, and over replicas: a tree of functions under their callers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from permille.coverage.domain.profile import Function

# Of all sessions together.
MOST_PATHS = 100_000
_Key = tuple[int, Function]
_OUTERMOST = -1


class PathRow(NamedTuple):
    """All calls of one session, or of a part of it, with one path; `path` and `above` are known in that part alone."""

    path: int
    above: int
    function: Function
    calls: int
    self_instructions: int
    total_instructions: int


@dataclass(frozen=True)
class Walked:
    """A session or a part of it: its heaviest paths, callers first, of how many; all its calls and instructions.

    `whole`: whether there is no path but those in `rows`, as deep as is looked; `walked`: calls that were looked at.
    """

    rows: tuple[PathRow, ...]
    distinct: int
    calls: int
    instructions: int
    whole: bool = True
    walked: int = 0


@dataclass
class Path:
    """One path over all sessions; `above`: the place of its caller's path, -1 for the outermost."""

    above: int
    function: Function
    calls: int = 0
    self_instructions: int = 0
    total_instructions: int = 0
    sessions: int = 0
    weighted: float = 0.0
    newest: int = _OUTERMOST


@dataclass
class MergedPaths:
    """Adds sessions up. What has no place among `most` is only counted."""

    most: int = MOST_PATHS
    paths: list[Path] = field(default_factory=list)
    calls: int = 0
    weighted_instructions: float = 0.0
    complete: bool = True
    _places: dict[_Key, int] = field(default_factory=dict)
    _distinct: int = 0
    _sessions: int = 0

    def add(self, parts: Iterable[Walked], factor: float = 1.0) -> None:
        """One session, with the factor by which its counts are raised for what it lost."""
        for part in parts:
            self.calls += part.calls
            self.weighted_instructions += factor * part.instructions
            self._distinct = max(self._distinct, part.distinct)
            self.complete = self.complete and part.whole
            places = {0: _OUTERMOST}
            for row in part.rows:
                place = self._place(places.get(row.above), row.function)
                if place is not None:
                    places[row.path] = place
                    self._count(self.paths[place], row, factor)
        self._sessions += 1

    @property
    def distinct(self) -> int:
        """Different paths: at least so many."""
        return max(self._distinct, len(self.paths))

    def heaviest(self, limit: int) -> list[Path]:
        """So many paths with the most instructions in and below them, as a tree: `above` counts in this list.

        Each stands under its caller, the heavier ones first.
        """
        weights = self._weights()
        # Callers have the smaller places, so that with a path its callers are chosen too.
        order = sorted(range(len(self.paths)), key=lambda place: (-weights[place], place))[:limit]
        below: dict[int, list[int]] = {}
        for place in order:
            below.setdefault(self.paths[place].above, []).append(place)
        found: list[Path] = []
        pending = [(place, _OUTERMOST) for place in reversed(below.get(_OUTERMOST, []))]
        while pending:
            place, above = pending.pop()
            found.append(replace(self.paths[place], above=above))
            pending += [(inner, len(found) - 1) for inner in reversed(below.get(place, []))]
        return found

    def _weights(self) -> list[float]:
        """Of each path; never more than its caller's, which a recording that began or ended in it may have cut."""
        found: list[float] = []
        for one in self.paths:
            found.append(one.weighted if one.above == _OUTERMOST else min(one.weighted, found[one.above]))
        return found

    def _place(self, above: int | None, function: Function) -> int | None:
        if above is None:
            return None
        key = (above, function)
        place = self._places.get(key)
        if place is None:
            if len(self.paths) >= self.most:
                self.complete = False
                return None
            place = self._places[key] = len(self.paths)
            self.paths.append(Path(above, function))
        return place

    def _count(self, path: Path, row: PathRow, factor: float) -> None:
        path.calls += row.calls
        path.self_instructions += row.self_instructions
        path.total_instructions += row.total_instructions
        path.weighted += factor * row.total_instructions
        # A session may come in several parts.
        path.sessions += path.newest != self._sessions
        path.newest = self._sessions
