"""Between the wire and the domain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.node import OWN_RECORDER, GroupOnNode, Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.plan import NodePlan, Plan, Wish
from permille.coverage.domain.quota import DEFAULT, Quota
from permille.coverage.domain.rounds import MOST_ROUNDS
from permille.coverage.domain.spatial_sampler import Choice
from permille.coverage.domain.target import Target
from permille.coverage.domain.temporal_decider import HIGHEST_WEIGHT, Term
from permille.mesh.errors import InvalidArgument, PermilleError

_PURPOSES = {
    coverage_pb2.PURPOSE_UNSPECIFIED: Purpose.ON_DEMAND,
    coverage_pb2.PURPOSE_ANOMALY: Purpose.ANOMALY,
    coverage_pb2.PURPOSE_PROFILING: Purpose.PROFILING,
    coverage_pb2.PURPOSE_ON_DEMAND: Purpose.ON_DEMAND,
}
_NODES = "nodes/"
# They are kept with every operation.
_LONGEST_NAME = 128
# As a path may be.
_LONGEST_TEXT = 4096
_TARGET_TEXTS = ("node", "process_name", "cgroup", "container_id", "pod", "selector")
# As controllers have it.
_LEAST_BUDGET_BYTES = 1 << 20
_MOST_REASONS = 16


def wish_of(request: coverage_pb2.CoverageRequest) -> Wish:
    """The request as a wish. Raises `InvalidArgument` for what cannot be meant."""
    purpose = _PURPOSES.get(request.purpose)
    if purpose is None:
        raise InvalidArgument(
            f"purpose {request.purpose} is unknown",
            reason="PURPOSE_UNKNOWN",
            help="use ANOMALY, PROFILING or ON_DEMAND",
        )
    asked = request.target
    texts = [(name, getattr(request, name), _LONGEST_NAME) for name in ("cause", "namespace")]
    texts += [(name, getattr(asked, name), _LONGEST_TEXT) for name in _TARGET_TEXTS]
    for name, text, longest in texts:
        if len(text) > longest:
            raise InvalidArgument(
                f"the {name} has {len(text)} characters",
                reason=f"{name.upper()}_TOO_LONG",
                help=f"at most {longest} are kept",
            )
    if 0 < request.budget_bytes < _LEAST_BUDGET_BYTES:
        raise InvalidArgument(
            f"a budget of {request.budget_bytes:,} bytes has no room for a recording",
            reason="BUDGET_TOO_SMALL",
            help=f"a budget is {_LEAST_BUDGET_BYTES:,} bytes or more; without one each node takes its own",
        )
    target = Target(
        node_id(asked.node),
        tuple(asked.pids),
        asked.process_name,
        asked.cgroup,
        asked.container_id,
        asked.pod,
        asked.selector,
        _backend(request.backend),
    )
    rounds = request.rounds.limit
    require_rounds(request.rounds)
    if rounds and purpose is not Purpose.PROFILING:
        raise InvalidArgument(
            f"rounds are for PROFILING, not for {purpose}",
            reason="ROUNDS_PURPOSE",
            help="leave rounds out: what an anomaly concerns is recorded at once",
        )
    return Wish(
        target,
        purpose,
        request.period_ms,
        request.budget_bytes,
        priority=request.priority if request.HasField("priority") else None,
        namespace=request.namespace or DEFAULT,
        rounds=rounds,
        weights=_weights(request.weights) if request.HasField("weights") else {},
        quota=_quota(request.quota),
        longest_ms=request.longest_period_ms,
        snapshot=request.options.snapshot,
    )


def _backend(asked: controller_pb2.Backend.ValueType) -> str:
    if asked not in controller_pb2.Backend.values():
        raise InvalidArgument(
            f"backend {asked} is unknown",
            reason="BACKEND_UNKNOWN",
            help="use VPT, KMOD or PERF, or leave it to each node",
        )
    return backend_word(asked)


def require_rounds(rounds: coverage_pb2.AdaptiveRounds) -> None:
    """Raises `InvalidArgument` for more rounds than there may be, or a gain that no round can be held against."""
    if rounds.limit > MOST_ROUNDS:
        raise InvalidArgument(
            f"{rounds.limit} rounds are more than {MOST_ROUNDS}",
            reason="TOO_MANY_ROUNDS",
            help="rounds end by themselves when another one is not worth its cost",
        )
    for name, gain in (
        ("min_gain", rounds.min_gain),
        ("min_gain_per_core_second", rounds.min_gain_per_core_second),
    ):
        if not 0 <= gain < math.inf:
            raise InvalidArgument(
                f"{name} is {gain}",
                reason="GAIN_OUT_OF_RANGE",
                help="a gain is a number of new functions, more than zero; zero leaves it to the service",
                metadata={"gain": name},
            )


def _quota(asked: coverage_pb2.NamespaceQuota) -> Quota:
    quota = Quota(asked.cores, asked.bytes_per_second, asked.decode_ms)
    for name, value in vars(quota).items():
        if not 0 <= value < math.inf:
            raise InvalidArgument(
                f"the quota's {name} is {value}",
                reason="QUOTA_OUT_OF_RANGE",
                help="a quota is more than zero; zero leaves it to the service",
                metadata={"quota": name},
            )
    return quota


def _weights(asked: coverage_pb2.Weights) -> dict[str, float]:
    weights = {"priority": asked.priority, "complexity": asked.complexity, "stability": asked.stability}
    for name, weight in weights.items():
        if not 0 <= weight <= HIGHEST_WEIGHT:
            raise InvalidArgument(
                f"the weight of {name} is {weight}",
                reason="WEIGHT_OUT_OF_RANGE",
                help=f"a weight is 0 to {HIGHEST_WEIGHT:,.0f}; only the ratios of the three count",
                metadata={"weight": name},
            )
    return weights


def node_id(name: str) -> str:
    """The id in `nodes/<id>`; "" stays "". Raises `InvalidArgument`."""
    if not name:
        return ""
    identity = name.removeprefix(_NODES)
    if not name.startswith(_NODES) or not identity or "/" in identity:
        raise InvalidArgument(
            f"{name!r} does not name a node",
            reason="NODE_NAME",
            help="a node is written `nodes/<name>`; leave it empty for all nodes",
            metadata={"node": name},
        )
    return identity


def backend_word(backend: controller_pb2.Backend.ValueType) -> str:
    """As controllers and tables call it; "" for none."""
    if backend == controller_pb2.BACKEND_UNSPECIFIED:
        return ""
    return controller_pb2.Backend.Name(backend).removeprefix("BACKEND_").lower()


def backend_value(word: str) -> controller_pb2.Backend.ValueType:
    """The other way."""
    return controller_pb2.Backend.Value(f"BACKEND_{word.upper()}") if word else controller_pb2.BACKEND_UNSPECIFIED


def node_of(name: str, node: controller_pb2.Node, zone: str = "", backend: str = "") -> Node:
    """What a controller said of its node; `zone`: where it is, "" for what it says; `backend`: the one asked for."""
    why_not = next((one for one in node.capabilities if one.name == backend and not one.available), None)
    return Node(
        name,
        unavailable=why_not.detail if why_not else "",
        way_out=why_not.fix if why_not else "",
        recordable=tuple(_process(process) for process in node.processes),
        others=tuple(Process(p.pid, p.name) for p in node.other_processes),
        recording=tuple(node.recording),
        trace_budget_bytes=node.trace_budget_bytes,
        cores=node.cores,
        zone=zone or node.zone,
        group=GroupOnNode(frozenset(node.group.pids), node.group.found, node.group.why_not, tuple(node.group.nearest)),
    )


def _process(process: controller_pb2.Process) -> Process:
    # Of a program without a build id the same command is taken for the same version.
    version = process.build_id or next(iter(process.command_line), "")
    return Process(
        process.pid,
        process.name,
        process.session,
        max(process.threads, 1),
        version,
        backend_word(process.backend) or OWN_RECORDER,
        process.binary_bytes or None,
    )


def plan_message(plan: Plan, unreachable: Iterable[str]) -> coverage_pb2.Plan:
    """The plan on the wire."""
    return coverage_pb2.Plan(
        nodes=[_session_message(session) for session in plan.nodes],
        expected_bytes=plan.expected_bytes,
        expected_decode_ms=plan.expected_decode_ms,
        measured_sessions=plan.measured_sessions,
        unreachable_nodes=[_NODES + name for name in unreachable],
        choices=[_choice_message(choice) for choice in plan.choices],
        expected_core_seconds=plan.expected_core_seconds,
        later=[_session_message(session) for session in plan.later],
        sample_terms=[_term_message(term) for term in plan.sample_terms],
        not_planned=_not_planned(plan.choices),
    )


def _session_message(session: NodePlan) -> coverage_pb2.NodePlan:
    return coverage_pb2.NodePlan(
        node=_NODES + session.node,
        pids=session.pids,
        period_ms=session.period_ms,
        budget_bytes=session.budget_bytes,
        backend=backend_value(session.backend),
        expected_bytes=session.expected_bytes,
        period_terms=[_term_message(term) for term in session.terms],
        expected_core_seconds=session.expected_core_seconds,
        expected_overhead=session.expected_overhead,
        heavy=session.heavy,
        left_out=session.left_out,
    )


def _not_planned(choices: Iterable[Choice]) -> list[coverage_pb2.NotPlanned]:
    reasons = Counter(choice.reason for choice in choices if not choice.chosen)
    return [
        coverage_pb2.NotPlanned(reason=reason, instances=instances)
        for reason, instances in reasons.most_common(_MOST_REASONS)
    ]


def _choice_message(choice: Choice) -> coverage_pb2.Choice:
    one = choice.instance
    return coverage_pb2.Choice(
        node=_NODES + one.node.name,
        zone=one.node.zone,
        pid=one.process.pid,
        process_name=one.process.name,
        version=one.version,
        chosen=choice.chosen,
        reason=choice.reason,
    )


def _term_message(term: Term) -> coverage_pb2.Term:
    return coverage_pb2.Term(
        name=term.name,
        value=term.value,
        weight=term.weight,
        contribution=term.contribution,
        detail=term.detail,
    )


def purpose_word(request: coverage_pb2.CoverageRequest) -> str:
    """The purpose as controllers call it."""
    return str(_PURPOSES[request.purpose])


def node_failure(node: str, session: str, error: PermilleError) -> coverage_pb2.NodeFailure:
    """What became of a node that a result is without."""
    return coverage_pb2.NodeFailure(
        node=node, session=session, reason=error.reason, message=error.message, help=error.help
    )
