"""From a wish and what the nodes say to who records what, for how long, at which cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from permille.coverage.domain.node import OWN_RECORDER, Node, Process
from permille.coverage.domain.period import LONGEST_MS, Purpose, require_period
from permille.coverage.domain.quota import CLUSTER, DEFAULT, CallerLimits, Limit, Quota, Room, Usage
from permille.coverage.domain.rates import DECODE_FLOOR_MS, Rates
from permille.coverage.domain.rounds import longest_round_ms
from permille.coverage.domain.spatial_sampler import Choice, Instance, Sample, Sampling, choose, spread
from permille.coverage.domain.target import Target, match
from permille.coverage.domain.temporal_decider import (
    Decision,
    Situation,
    Term,
    Weights,
    complexity,
    decide,
    priority_for,
)
from permille.mesh.errors import FailedPrecondition, InvalidArgument, ResourceExhausted

# As its controller does: the others keep what was written first.
_TAKES_SNAPSHOTS = "perf"


@dataclass(frozen=True)
class Wish:
    """What somebody wants; zeros, and None for the priority, are filled in by the plan. `rounds` 0: all at once."""

    target: Target
    purpose: Purpose = Purpose.ON_DEMAND
    period_ms: int = 0
    budget_bytes: int = 0
    priority: int | None = None
    namespace: str = DEFAULT
    rounds: int = 0
    # In place of the policy's, by their names in `Weights`.
    weights: Mapping[str, float] = field(default_factory=dict)
    # Of the namespace, where it is less than the policy's.
    quota: Quota = field(default_factory=Quota)
    # Of a period that is decided; 0: the policy's own.
    longest_ms: int = 0
    # What was written last is to be kept, where a buffer is full.
    snapshot: bool = False

    def __post_init__(self) -> None:
        """Raises `InvalidArgument` (ROUNDS_TARGET) for rounds among processes that were named one by one."""
        if self.rounds > 1 and self.target.exact:
            raise InvalidArgument(
                f"{self.rounds} rounds go from one process of a name to another, and the target is"
                f" {self.target.group or 'pids'}",
                reason="ROUNDS_TARGET",
                help="give the process name for rounds, or leave rounds out: what is named is recorded at once",
            )

    @property
    def sampled(self) -> bool:
        """Whether as many of the processes are recorded as are worth it, and not all."""
        return self.purpose is Purpose.PROFILING and not self.target.exact

    @property
    def adaptive(self) -> bool:
        """Whether one is recorded after the other."""
        return self.sampled and self.rounds > 0


@dataclass(frozen=True)
class Policy:
    """What an installation allows and prefers. Who has no quota or limits of its own has those of `default`."""

    longest_ms: int = LONGEST_MS
    weights: Weights = field(default_factory=Weights)
    sampling: Sampling = field(default_factory=Sampling)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    callers: Mapping[str, CallerLimits] = field(default_factory=dict)
    # Of all namespaces together.
    cluster: Quota = CLUSTER

    def quota(self, namespace: str, asked: Quota | None = None) -> Quota:
        """Of the unfinished requests of this namespace; the smaller ones of what is `asked` hold."""
        configured = self.quotas.get(namespace) or self.quotas.get(DEFAULT) or Quota()
        return configured.tightened(asked or Quota())

    def caller(self, name: str) -> CallerLimits:
        """Of this caller."""
        return self.callers.get(name) or self.callers.get(DEFAULT) or CallerLimits()


@dataclass(frozen=True)
class NodePlan:
    """One session to come; `budget_bytes` 0 leaves it to the node. `terms`: why so long, when that was decided."""

    node: str
    pids: tuple[int, ...]
    period_ms: int
    budget_bytes: int
    expected_bytes: int
    expected_decode_ms: int = 0
    expected_core_seconds: float = 0.0
    expected_overhead: float = 0.0
    terms: tuple[Term, ...] = ()
    backend: str = "vpt"
    # Of which its node has one at a time.
    heavy: bool = False
    # Processes that the wish means there too.
    left_out: int = 0


@dataclass(frozen=True)
class Plan:
    """All sessions of one wish and what they will cost together; `later`: what further rounds may record, in order."""

    nodes: tuple[NodePlan, ...]
    expected_bytes: int
    expected_decode_ms: int
    measured_sessions: int
    choices: tuple[Choice, ...] = ()
    sample_terms: tuple[Term, ...] = ()
    later: tuple[NodePlan, ...] = ()
    # At once; with rounds of the one that takes most.
    usage: Usage = field(default_factory=Usage)

    @property
    def expected_core_seconds(self) -> float:
        """Of all sessions."""
        return sum(session.expected_core_seconds for session in self.nodes)

    @property
    def heavy_nodes(self) -> frozenset[str]:
        """Nodes that nobody else may record heavily while these sessions do."""
        return frozenset(session.node for session in self.nodes if session.heavy)


def plan(
    wish: Wish,
    nodes: Sequence[Node],
    rates: Mapping[tuple[str, str], Rates],
    *,
    policy: Policy | None = None,
    issues: Mapping[str, float] | None = None,
    room: Room | None = None,
) -> Plan:
    """Who records what. `rates`: what is known by back end and process name; who has none gets the first guesses.

    `issues`: recent troubles by process name; `room`: by default the namespace's quota, of which nobody takes
    anything. A node has one session. Raises what `match`, `require_period` and `priority_for` raise,
    `FailedPrecondition` (ALREADY_TRACED) when a process that was named, by pid or as one of a group, or each one of a
    name is being recorded already, `ResourceExhausted` when there is room for none (QUOTA_IN_USE: not now),
    `InvalidArgument` (SNAPSHOT_UNSUPPORTED) when no session could be the snapshot that is wanted.
    """
    if wish.budget_bytes < 0:
        raise InvalidArgument(
            f"budget_bytes is {wish.budget_bytes}",
            reason="BUDGET_NEGATIVE",
            help="give 0 for the node's default, or a size in bytes",
        )
    policy = policy or Policy()
    estimator = _Estimator(wish, rates, policy, issues or {})
    matches = match(wish.target, nodes)
    instances = [estimator.instance(found.node, process) for found in matches for process in found.processes]
    recorded = [one.process for one in instances if one.process.session]
    # A group is recorded whole: its session may add whoever is in it.
    if recorded and not wish.sampled and (wish.target.exact or len(recorded) == len(instances)):
        raise _already_recorded(recorded[0])
    room = Room([Limit(policy.quota(wish.namespace, wish.quota))]) if room is None else room
    sample = _sample(wish, instances, policy, room)
    if not sample.chosen:
        alone = _sample(wish, [one.alone() for one in instances], policy, room.alone())
        raise _none_fits(wish, sample, in_use=bool(alone.chosen))
    first, later = (sample.chosen[:1], sample.chosen[1:]) if wish.adaptive else (sample.chosen, [])
    beyond = Counter(
        choice.instance.node.name
        for choice in sample.choices
        if not (choice.chosen or choice.instance.process.session or wish.sampled)
    )
    sessions = tuple(replace(session, left_out=beyond[session.node]) for session in estimator.sessions(first))
    if wish.snapshot and not any(session.backend == _TAKES_SNAPSHOTS for session in sessions):
        raise _no_snapshots(sessions[0].backend)
    return Plan(
        sessions,
        sum(session.expected_bytes for session in sessions),
        sum(session.expected_decode_ms for session in sessions),
        min(rates.get(one.process.measured_as, Rates()).sessions for one in first),
        sample.choices,
        sample.terms,
        tuple(session for one in later for session in estimator.sessions([one])),
        _usage(sample.chosen, together=not wish.adaptive),
    )


class _Estimator:
    """Periods and costs of one wish."""

    def __init__(
        self, wish: Wish, rates: Mapping[tuple[str, str], Rates], policy: Policy, issues: Mapping[str, float]
    ) -> None:
        self._wish = wish
        self._rates = rates
        self._policy = policy
        self._issues = issues
        self._weights = policy.weights.by(wish.weights)
        self._priority = priority_for(wish.purpose, wish.priority)
        if wish.period_ms:
            require_period(wish.period_ms, longest_ms=policy.longest_ms)

    def instance(self, node: Node, process: Process) -> Instance:
        """A process with what recording it alone is expected to take, with rounds for as long as one may be."""
        period_ms = self._period([process]).period_ms
        if self._wish.adaptive:
            period_ms = max(period_ms, longest_round_ms(self._policy.longest_ms))
        _, decode_ms = self._cost(node, [process], period_ms)
        return Instance(node, process, self._known(process).bytes_per_second, decode_ms)

    def sessions(self, instances: Sequence[Instance]) -> list[NodePlan]:
        """Those of one node together."""
        by_node: dict[str, list[Instance]] = {}
        for one in instances:
            by_node.setdefault(one.node.name, []).append(one)
        return [self._session(together) for together in by_node.values()]

    def _session(self, part: Sequence[Instance]) -> NodePlan:
        node, processes = part[0].node, [one.process for one in part]
        decision = self._period(processes)
        expected, decode_ms = self._cost(node, processes, decision.period_ms)
        fastest = max(one.bytes_per_second for one in part)
        # One that was made ready for a recorder of its own can be recorded by the kernel's too, not the other way.
        backend = next((process.backend for process in processes if process.backend != OWN_RECORDER), OWN_RECORDER)
        cores = sum(one.cores for one in part)
        return NodePlan(
            node.name,
            tuple(one.process.pid for one in part),
            decision.period_ms,
            self._wish.budget_bytes,
            expected,
            expected_decode_ms=decode_ms,
            expected_core_seconds=(min(cores, node.cores) if node.cores else cores) * decision.period_ms / 1000,
            expected_overhead=fastest / self._policy.weights.reference_bytes_per_second,
            terms=decision.terms,
            backend=backend,
            heavy=self._policy.sampling.is_heavy(sum(one.bytes_per_second for one in part)),
        )

    def _cost(self, node: Node, processes: Sequence[Process], period_ms: int) -> tuple[int, int]:
        """Bytes that a session of these will write, and the time that decoding them will take."""
        by_rates = Counter(map(self._known, processes))
        sizes = {known: known.expected_bytes(number, period_ms, 0) for known, number in by_rates.items()}
        written, budget = sum(sizes.values()), self._wish.budget_bytes or node.trace_budget_bytes
        expected = min(written, budget) if budget else written
        kept = expected / written if written else 0.0
        work_ms = sum(known.decoding_ms(size * kept) for known, size in sizes.items())
        return expected, DECODE_FLOOR_MS + int(work_ms)

    def _period(self, processes: Sequence[Process]) -> Decision:
        """That of the most complex, the most troubled and the most that one of them writes."""
        if self._wish.period_ms:
            return Decision(self._wish.period_ms)
        each = {
            Situation(
                self._priority,
                blocks=known.blocks,
                binary_bytes=process.binary_bytes,
                issues=self._issues.get(process.name, 0.0),
                bytes_per_second=known.bytes_per_second,
            )
            for process in processes
            for known in (self._known(process),)
        }
        most = replace(
            max(each, key=lambda one: complexity(one, self._weights)),
            issues=max(one.issues for one in each),
            bytes_per_second=max(one.bytes_per_second for one in each),
        )
        longest_ms = min(self._wish.longest_ms or self._policy.longest_ms, self._policy.longest_ms)
        return decide(most, self._weights, longest_ms=longest_ms)

    def _known(self, process: Process) -> Rates:
        return self._rates.get(process.measured_as, Rates())


def _usage(chosen: Sequence[Instance], *, together: bool) -> Usage:
    usage = Usage()
    for one in chosen:
        usage = usage + one.usage if together else usage.at_least(one.usage)
    return usage


def _sample(wish: Wish, instances: Sequence[Instance], policy: Policy, room: Room) -> Sample:
    """With rounds as many as there may be of them: one runs at a time, so each has all the room."""
    priority = priority_for(wish.purpose, wish.priority)
    if wish.adaptive:
        turns, left = [], wish.rounds
        for one in spread(instances):
            (turn,) = choose([one], wish.purpose, priority, room=room, sampling=policy.sampling).choices
            if turn.chosen and not left:
                turn = replace(turn, chosen=False, reason=f"rounds: at most {wish.rounds}")
            left -= turn.chosen
            turns.append(turn)
        return Sample(tuple(turns))
    return choose(instances, wish.purpose, priority, room=room, sampling=policy.sampling, named=wish.target.exact)


def _already_recorded(process: Process) -> FailedPrecondition:
    return FailedPrecondition(
        f"process {process.pid} ({process.name}) is being recorded now by {process.session}",
        reason="ALREADY_TRACED",
        help="wait until that recording ends; one process is recorded by one session at a time",
        metadata={"pid": str(process.pid), "session": process.session},
        retry_after_s=1.0,
    )


def _no_snapshots(backend: str) -> InvalidArgument:
    return InvalidArgument(
        f"{backend} takes no snapshots: where a buffer is full, it keeps what was written first",
        reason="SNAPSHOT_UNSUPPORTED",
        help="trace with --backend perf, which keeps what was written last; or without --snapshot, with a larger"
        " --buffer or a shorter --for",
        metadata={"field": "options.snapshot", "backend": backend},
    )


def _none_fits(wish: Wish, sample: Sample, *, in_use: bool) -> ResourceExhausted:
    reasons = "; ".join(dict.fromkeys(choice.reason for choice in sample.choices))
    return ResourceExhausted(
        f"none of {len(sample.choices)} instances can be recorded now: {reasons}",
        reason="QUOTA_IN_USE" if in_use else "NOTHING_WITHIN_QUOTA",
        help="wait for what is being recorded, ask for less, or raise the quota ([coverage] quotas, callers)",
        metadata={"namespace": wish.namespace},
        retry_after_s=5.0,
    )
