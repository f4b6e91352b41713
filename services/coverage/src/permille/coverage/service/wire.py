"""Between the wire and the domain."""

from __future__ import annotations

from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.plan import Plan, Wish
from permille.coverage.domain.target import Target
from permille.mesh.errors import InvalidArgument

_PURPOSES = {
    coverage_pb2.PURPOSE_UNSPECIFIED: Purpose.ON_DEMAND,
    coverage_pb2.PURPOSE_ANOMALY: Purpose.ANOMALY,
    coverage_pb2.PURPOSE_PROFILING: Purpose.PROFILING,
    coverage_pb2.PURPOSE_ON_DEMAND: Purpose.ON_DEMAND,
}
_NODES = "nodes/"


def wish_of(request: coverage_pb2.CoverageRequest) -> Wish:
    """The request as a wish. Raises `InvalidArgument` for what cannot be meant."""
    purpose = _PURPOSES.get(request.purpose)
    if purpose is None:
        raise InvalidArgument(
            f"purpose {request.purpose} is unknown",
            reason="PURPOSE_UNKNOWN",
            help="use ANOMALY, PROFILING or ON_DEMAND",
        )
    target = Target(node_id(request.target.node), tuple(request.target.pids), request.target.process_name)
    return Wish(target, purpose, request.period_ms, request.budget_bytes)


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


def node_of(name: str, node: controller_pb2.Node) -> Node:
    """What a controller said of its node."""
    return Node(
        name,
        recordable=tuple(Process(p.pid, p.name, p.session) for p in node.processes),
        others=tuple(Process(p.pid, p.name) for p in node.other_processes),
        trace_budget_bytes=node.trace_budget_bytes,
    )


def plan_message(plan: Plan, unreachable: list[str]) -> coverage_pb2.Plan:
    """The plan on the wire."""
    return coverage_pb2.Plan(
        nodes=[
            coverage_pb2.NodePlan(
                node=_NODES + session.node,
                pids=session.pids,
                period_ms=session.period_ms,
                budget_bytes=session.budget_bytes,
                backend=controller_pb2.BACKEND_VPT,
                expected_bytes=session.expected_bytes,
            )
            for session in plan.nodes
        ],
        expected_bytes=plan.expected_bytes,
        expected_decode_ms=plan.expected_decode_ms,
        measured_sessions=plan.measured_sessions,
        unreachable_nodes=[_NODES + name for name in unreachable],
    )


def purpose_word(request: coverage_pb2.CoverageRequest) -> str:
    """The purpose as controllers call it."""
    return str(_PURPOSES[request.purpose])
