"""Which instances are recorded: all that an anomaly concerns, a spread sample of them for a profile.

Replicas run the same code, so of a profile's N replicas N**exponent are looked at: the square root of them at the
threshold of priority, all of them at the highest, one of each version below the threshold. Whatever the purpose, never
more than the quotas leave beside what else is being recorded, and on a node one session of at most 64 processes.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.quota import Limit, Room, Usage
from permille.coverage.domain.target import MOST_PIDS
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

    def is_heavy(self, bytes_per_second: float) -> bool:
        """Whether a node has one such session at a time."""
        return bytes_per_second >= self.heavy_bytes_per_second


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

    def alone(self) -> Instance:
        """As if nothing were recorded now."""
        node = replace(self.node, recording=(), recordable=())
        return replace(self, node=node, process=replace(self.process, session=""))

    @property
    def taken(self) -> str:
        """By whom it is being recorded; "" when it is free."""
        return f"being recorded by {self.process.session}" if self.process.session else ""

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
    """What each node's session holds so far; `busy`: nodes where others record, or are about to."""

    sampling: Sampling
    busy: Mapping[str, str] = field(default_factory=dict)
    processes: Counter[str] = field(default_factory=Counter)
    rates: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    heavy: set[str] = field(default_factory=set)

    def full(self, one: Instance) -> str:
        """Why the node's session cannot have one more process; "" when it can."""
        name = one.node.name
        full = self.processes[name] == MOST_PIDS
        return f"a session begins with at most {MOST_PIDS} processes, and that of {name} has as many" if full else ""

    def refusal(self, one: Instance) -> str:
        """Also when it would make a heavy session beside another one, or be the second that is heavy by itself."""
        name = one.node.name
        if name in self.busy and self.sampling.is_heavy(self.rates[name] + one.bytes_per_second):
            return self.busy[name]
        if name in self.heavy and self.sampling.is_heavy(one.bytes_per_second):
            return f"{name} has one of this sample already"
        return self.full(one)

    def add(self, one: Instance) -> None:
        name = one.node.name
        self.processes[name] += 1
        self.rates[name] += one.bytes_per_second
        if self.sampling.is_heavy(one.bytes_per_second):
            self.heavy.add(name)


def choose(
    instances: Sequence[Instance],
    purpose: Purpose,
    priority: int,
    *,
    room: Room | None = None,
    sampling: Sampling,
    named: bool = False,
) -> Sample:
    """Every instance for an anomaly or on demand, or when each was `named`; else a sample, spread.

    What is being recorded already is in neither. A sample leaves out nodes that are busy; every instance of the others
    is chosen, to begin when its node is free.
    """
    room = room or Room()
    if purpose is not Purpose.PROFILING or named:
        return Sample(tuple(_waiting(list(_within(instances, _Spent(room.limits), _Nodes(sampling))), room, sampling)))
    size, terms = sample_size(instances, priority, sampling)
    return Sample(tuple(_sampled(list(spread(instances)), size, room, sampling)), terms)


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


def _within(instances: Sequence[Instance], spent: _Spent, nodes: _Nodes) -> Iterator[Choice]:
    for one in instances:
        refusal = one.taken or nodes.full(one) or spent.refusal(one)
        if not refusal:
            nodes.add(one)
            spent.add(one)
        yield Choice(one, not refusal, refusal or "the target means it")


def _waiting(choices: Sequence[Choice], room: Room, sampling: Sampling) -> Iterator[Choice]:
    """Tells of each that its heavy session begins when another one's has ended."""
    rates: defaultdict[str, float] = defaultdict(float)
    for choice in choices:
        rates[choice.instance.node.name] += choice.instance.bytes_per_second if choice.chosen else 0.0
    for choice in choices:
        name = choice.instance.node.name
        if choice.chosen and name in room.held and sampling.is_heavy(rates[name]):
            yield replace(choice, reason=f"{choice.reason}; it begins when the heavy session of {name} has ended")
        else:
            yield choice


def _sampled(instances: Sequence[Instance], size: int, room: Room, sampling: Sampling) -> Iterator[Choice]:
    # What a session that runs writes is not known here: it counts as heavy.
    busy = {
        one.node.name: f"{one.node.name} has a session already"
        for one in instances
        if one.node.recording or any(process.session for process in one.node.recordable)
    }
    busy |= {name: f"{name} has a heavy session of another request" for name in room.held}
    nodes, spent = _Nodes(sampling, busy), _Spent(room.limits)
    taken = 0
    for one in instances:
        if one.taken:
            yield Choice(one, False, one.taken)
            continue
        refusal = f"the sample has {size} instances" if taken == size else nodes.refusal(one) or spent.refusal(one)
        if refusal:
            yield Choice(one, False, refusal)
            continue
        taken += 1
        nodes.add(one)
        spent.add(one)
        yield Choice(one, True, f"{taken} of {size}: spread over versions, zones and nodes")
