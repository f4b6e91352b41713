"""What has been seen of each binary, by build, and what is estimated to be missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from permille.coverage.domain.profile import Edge, Function, Profile
from permille.coverage.domain.unseen import Incidence, expected_new, sample_coverage, unseen


class Version(NamedTuple):
    """One build of a binary."""

    module: str
    build_id: str


@dataclass(frozen=True)
class Seen:
    """Functions and calls between functions of one build over the sessions that may have run it."""

    version: Version
    functions: Incidence
    edges: Incidence

    def missing_after(self, sessions: float) -> float:
        """Functions that will probably not have been seen after so many further sessions, as long as those before."""
        return max(0.0, unseen(self.functions) - expected_new(self.functions, sessions))


@dataclass
class Ledger:
    """Counts sessions, one at a time. A session in which nothing of a module ran is a unit of each of its builds."""

    sessions: int = 0
    functions: Counter[Function] = field(default_factory=Counter)
    edges: Counter[Edge] = field(default_factory=Counter)
    _with_module: Counter[str] = field(default_factory=Counter)
    _with_version: Counter[Version] = field(default_factory=Counter)

    def add(self, profile: Profile) -> int:
        """Counts a session; how many of its functions no session before had."""
        self.sessions += 1
        new = sum(1 for function in profile.functions if function not in self.functions)
        self.functions.update(profile.functions.keys())
        self.edges.update(profile.edges.keys())
        versions = {Version(function.module, function.build_id) for function in profile.functions}
        self._with_version.update(versions)
        self._with_module.update({version.module for version in versions})
        return new

    def by_version(self) -> list[Seen]:
        """The builds, the one with the most functions first; a call belongs to the build of what is called."""
        functions = _by_version((Version(f.module, f.build_id), count) for f, count in self.functions.items())
        edges = _by_version((Version(e.callee.module, e.callee.build_id), count) for e, count in self.edges.items())
        found = [
            Seen(version, Incidence(units, functions[version]), Incidence(units, edges.get(version, Counter())))
            for version in functions
            if (units := self._units(version))
        ]
        return sorted(found, key=lambda seen: (-seen.functions.observed, seen.version))

    def together(self) -> Incidence:
        """Functions of all builds."""
        return Incidence(self.sessions, Counter(self.functions.values()))

    def _units(self, version: Version) -> int:
        return self.sessions - self._with_module[version.module] + self._with_version[version]


@dataclass(frozen=True)
class Estimate:
    """Of functions, or of calls between them."""

    seen: int
    unseen: float
    sample_coverage: float
    next_session: float

    @classmethod
    def of(cls, seen: Incidence) -> Estimate:
        """All estimates of one incidence."""
        return cls(seen.observed, unseen(seen), sample_coverage(seen), expected_new(seen, 1))


def _by_version(counts: Iterable[tuple[Version, int]]) -> dict[Version, Counter[int]]:
    found: dict[Version, Counter[int]] = {}
    for version, count in counts:
        found.setdefault(version, Counter())[count] += 1
    return found
