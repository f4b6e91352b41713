"""Which instances are recorded: all that an anomaly concerns, a spread sample of them for a profile.

Replicas run the same code, so of a profile's N replicas N**exponent are looked at: the square root of them at the
threshold of priority, all of them at the highest, one of each version below the threshold. Whatever the purpose, never
more than the quotas leave beside what else is being recorded.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.quota import Limit, Usage
from permille.coverage.domain.temporal_decider import HIGHEST_PRIORITY, Term


@dataclass(frozen=True)
class Sampling:
    """How much of a deployment a profile looks at."""

    # Below this priority one instance of each version is enough.
    priority_threshold: int = 20
    # Of N replicas N**exponent at the threshold, growing to all at the highest priority.
    exponent: float = 0.5
    # A session that writes so much is heavy: of those a node has one at a time. The first guess for a program never
    # seen (20 MB/s) is above it.
    heavy_bytes_per_second: float = 15e6


@dataclass(frozen=True)
class Instance:
    """A process that the target means, and what recording it is expected to take."""

    node: Node
    process: Process
    bytes_per_second: float = 0.0
    decode_ms: int = 0

    @property
    def cores(self) -> int:
        """That it can run on at once."""
        return min(self.process.threads, self.node.cores) if self.node.cores else self.process.threads

    @property
    def usage(self) -> Usage:
        """Of recording it alone."""
        return Usage(self.cores, self.bytes_per_second, self.decode_ms)

    @property
    def version(self) -> str:
        """Replicas of one version run the same code."""
        return self.process.version or self.process.name


@dataclass(frozen=True)
class Choice:
    """An instance, whether it is recorded, and why or why not."""

    instance: Instance
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Sample:
    """All instances in the order of choosing, and what made the sample's size."""

    choices: tuple[Choice, ...]
    terms: tuple[Term, ...] = ()

    @property
    def chosen(self) -> list[Instance]:
        """Those to be recorded."""
        return [choice.instance for choice in self.choices if choice.chosen]


@dataclass
class _Spent:
    limits: Sequence[Limit]
    usage: Usage = field(default_factory=Usage)

    def refusal(self, one: Instance) -> str:
        """What a limit has too little of for one more; "" when it fits."""
        return next(filter(None, (limit.refusal(self.usage + one.usage) for limit in self.limits)), "")

    def add(self, one: Instance) -> None:
        self.usage += one.usage


@dataclass
class _Nodes:
    """Which nodes have a heavy session; one that runs already, of whatever, counts as heavy."""

    limit: float
    heavy: set[str] = field(default_factory=set)

    def refusal(self, one: Instance) -> str:
        heavy = one.bytes_per_second >= self.limit
        return f"{one.node.name} has a session already" if heavy and one.node.name in self.heavy else ""

    def add(self, one: Instance) -> None:
        if one.bytes_per_second >= self.limit:
            self.heavy.add(one.node.name)


def choose(
    instances: Sequence[Instance],
    purpose: Purpose,
    priority: int,
    *,
    limits: Sequence[Limit] = (),
    sampling: Sampling,
    named: bool = False,
) -> Sample:
    """Every instance for an anomaly or on demand, or when each was `named`; else a sample, spread."""
    if purpose is not Purpose.PROFILING or named:
        return Sample(tuple(_within(instances, _Spent(limits))))
    size, terms = sample_size(instances, priority, sampling)
    return Sample(tuple(_sampled(list(spread(instances)), size, _Spent(limits), sampling)), terms)


def sample_size(instances: Sequence[Instance], priority: int, sampling: Sampling) -> tuple[int, tuple[Term, ...]]:
    """How many instances a profile looks at, at least one of each version, and the terms of that."""
    number, versions = len(instances), len({one.version for one in instances})
    above = (priority - sampling.priority_threshold) / max(HIGHEST_PRIORITY - sampling.priority_threshold, 1)
    exponent = sampling.exponent + (1 - sampling.exponent) * min(max(above, 0.0), 1.0) if above >= 0 else 0.0
    # An exact power must not be rounded up for its last digit.
    size = min(number, max(versions, math.ceil(number**exponent - 1e-9)))
    return size, (
        Term("density", number, 1.0, number, f"{number} instances of {versions} versions"),
        Term(
            "priority", max(above, 0.0), 1 - sampling.exponent, exponent, f"{priority} of 100, exponent {exponent:.2f}"
        ),
        Term("sample", size, 1.0, size, f"{size} of {number} instances"),
    )


def spread(instances: Sequence[Instance]) -> Iterator[Instance]:
    """All of them, so that any beginning is spread as evenly as can be over versions, then zones, then nodes."""
    waiting: dict[str, dict[str, list[tuple[int, str, int, Instance]]]] = defaultdict(lambda: defaultdict(list))
    for one in instances:
        waiting[one.version][one.node.zone].append((0, one.node.name, one.process.pid, one))
    versions: Counter[str] = Counter()
    zones: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    for queues in waiting.values():
        for queue in queues.values():
            heapq.heapify(queue)
    while waiting:
        version = min(waiting, key=lambda name: (versions[name], name))
        zone = min(waiting[version], key=lambda name: (zones[name], name))
        queue = waiting[version][zone]
        while True:
            taken, name, pid, one = heapq.heappop(queue)
            if taken == nodes[name]:
                break
            # It was put here before its node was taken from.
            heapq.heappush(queue, (nodes[name], name, pid, one))
        versions[version] += 1
        zones[zone] += 1
        nodes[name] += 1
        if not queue:
            del waiting[version][zone]
        if not waiting[version]:
            del waiting[version]
        yield one


def _within(instances: Sequence[Instance], spent: _Spent) -> Iterator[Choice]:
    for one in instances:
        refusal = spent.refusal(one)
        if not refusal:
            spent.add(one)
        yield Choice(one, not refusal, refusal or "the target means it")


def _sampled(instances: Sequence[Instance], size: int, spent: _Spent, sampling: Sampling) -> Iterator[Choice]:
    nodes = _Nodes(sampling.heavy_bytes_per_second)
    nodes.heavy.update(one.node.name for one in instances if any(p.session for p in one.node.recordable))
    taken = 0
    for one in instances:
        if one.process.session:
            yield Choice(one, False, f"being recorded by {one.process.session}")
            continue
        refusal = f"the sample has {size} instances" if taken == size else nodes.refusal(one) or spent.refusal(one)
        if refusal:
            yield Choice(one, False, refusal)
            continue
        taken += 1
        nodes.add(one)
        spent.add(one)
        yield Choice(one, True, f"{taken} of {size}: spread over versions, zones and nodes")
