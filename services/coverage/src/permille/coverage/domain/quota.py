"""What unfinished requests may take together: those of a namespace, and those of one caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

DEFAULT = "default"


@dataclass(frozen=True)
class Quota:
    """Of all unfinished requests of a namespace together; 0: no limit. `decode_ms`: of all their sessions."""

    cores: int = 0
    bytes_per_second: float = 0.0
    decode_ms: int = 0

    def tightened(self, other: Quota) -> Quota:
        """The smaller limit of each."""
        return Quota(
            _smaller(self.cores, other.cores),
            _smaller(self.bytes_per_second, other.bytes_per_second),
            _smaller(self.decode_ms, other.decode_ms),
        )


_Number = TypeVar("_Number", int, float)


def _smaller(one: _Number, other: _Number) -> _Number:
    return min(one, other) if one and other else one or other


# Of all namespaces together, where nothing else is set: a thousand instances at the first guess fit, of one core,
# 20 MB/s and 0.6 s of decoding each at the shortest period; five thousand do not.
CLUSTER = Quota(cores=4_000, bytes_per_second=40e9, decode_ms=3_600_000)
ANY_NAMESPACE = "*"


@dataclass(frozen=True)
class CallerLimits:
    """Of one caller; 0: no limit. `requests` and `cores`: of what it began and is not done.

    `namespaces`: for which it may ask, `*` for all; None: all for people, permille's own services, and `default` alone
    for other systems.
    """

    calls_per_minute: int = 600
    requests: int = 200
    cores: int = 0
    namespaces: tuple[str, ...] | None = None

    def allows(self, namespace: str, *, trusted: bool) -> bool:
        """Whether the caller may ask for this namespace; `trusted`: it is no other system."""
        if self.namespaces is None:
            return trusted or namespace == DEFAULT
        return ANY_NAMESPACE in self.namespaces or namespace in self.namespaces


@dataclass(frozen=True)
class Usage:
    """What recordings take at once, and their decoding."""

    cores: int = 0
    bytes_per_second: float = 0.0
    decode_ms: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cores + other.cores,
            self.bytes_per_second + other.bytes_per_second,
            self.decode_ms + other.decode_ms,
        )

    def at_least(self, other: Usage) -> Usage:
        """The larger of each: of recordings that follow each other."""
        return Usage(
            max(self.cores, other.cores),
            max(self.bytes_per_second, other.bytes_per_second),
            max(self.decode_ms, other.decode_ms),
        )


@dataclass(frozen=True)
class Limit:
    """A quota and what other requests take of it; `owner`: whose quota it is, where that is not the namespace."""

    quota: Quota = field(default_factory=Quota)
    taken: Usage = field(default_factory=Usage)
    owner: str = ""

    def refusal(self, wanted: Usage) -> str:
        """What there is too little of for so much more; "" when it fits."""
        quota, taken = self.quota, self.taken
        if quota.cores and taken.cores + wanted.cores > quota.cores:
            return self._told(f"{quota.cores} traced cores", taken.cores)
        if quota.bytes_per_second and taken.bytes_per_second + wanted.bytes_per_second > quota.bytes_per_second:
            return self._told(f"{quota.bytes_per_second / 1e6:g} MB/s to the store", taken.bytes_per_second / 1e6)
        if quota.decode_ms and taken.decode_ms + wanted.decode_ms > quota.decode_ms:
            return self._told(f"{quota.decode_ms} ms of decoding", taken.decode_ms)
        return ""

    def untaken(self) -> Limit:
        """As if there were no other requests."""
        return replace(self, taken=Usage())

    def _told(self, quota: str, taken: float) -> str:
        owner = f" of {self.owner}" if self.owner else ""
        return f"the quota{owner} is {quota}" + (f", of which other requests take {taken:g}" if taken else "")


@dataclass(frozen=True)
class Room:
    """What there is for one more request: limits, and the nodes on which another one's heavy session records."""

    limits: Sequence[Limit] = ()
    held: frozenset[str] = frozenset()

    def alone(self) -> Room:
        """As if there were no other requests."""
        return Room([limit.untaken() for limit in self.limits])
