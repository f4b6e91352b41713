"""What can be asked for, as plain arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.client.errors import InvalidArgument

Purpose = Literal["anomaly", "profiling", "on_demand"]
Backend = Literal["", "vpt", "kmod", "perf"]
Measure = Literal["instructions", "calls"]
# As the API has it.
_LONGEST_RETENTION_S = (1 << 32) - 1


class Weights(TypedDict, total=False):
    """Of what a decided period is a mean of; only their ratios count, and one that is left out is zero."""

    priority: float
    complexity: float
    stability: float


def wish(
    *,
    pids: Sequence[int] = (),
    process_name: str = "",
    pod: str = "",
    container_id: str = "",
    cgroup: str = "",
    selector: str = "",
    node: str = "",
    purpose: Purpose = "on_demand",
    period_ms: int = 0,
    budget_bytes: int = 0,
    priority: int | None = None,
    namespace: str = "",
    rounds: int = 0,
    min_gain: float = 0.0,
    min_gain_per_core_second: float = 0.0,
    weights: Weights | None = None,
    backend: Backend = "",
    retention_s: int | None = None,
    cause: str = "",
) -> coverage_pb2.CoverageRequest:
    """A target, named in one way, why it is recorded, and limits; what is left out the service decides.

    `pod`: `namespace/name` or UID; `selector`: labels of pods, `app=web,tier!=front`; `node`: without `nodes/`, all
    nodes for ""; `namespace`: whose quota it counts against; `weights`: in place of the service's.
    `rounds`: of profiling, at most so many replicas one after the other, while the next one is expected to show
    `min_gain` new functions for each MiB of trace and `min_gain_per_core_second`; 0: the service's settings.
    `retention_s`: so long after its operation's end a recording is deleted, with its rows; None: as the mesh keeps it.
    `cause`: of an anomaly, what happened; requests about the same count as one trouble of the program.

    Raises `InvalidArgument` for a gain without rounds, a retention that is no whole number of seconds above 0, and an
    unknown purpose or back end.
    """
    if (min_gain or min_gain_per_core_second) and not rounds:
        raise InvalidArgument(
            "a gain is wanted of rounds, and there are none",
            reason="ROUNDS_MISSING",
            help="give rounds: how many there may be at most",
        )
    if retention_s is not None and not (isinstance(retention_s, int) and 1 <= retention_s <= _LONGEST_RETENTION_S):
        raise InvalidArgument(
            f"a recording cannot be kept for {retention_s!r} seconds",
            reason="RETENTION",
            help=f"give a whole number of seconds, 1 to {_LONGEST_RETENTION_S}, or leave it out for the mesh's setting",
            metadata={"value": str(retention_s)},
        )
    return coverage_pb2.CoverageRequest(
        target=coverage_pb2.Target(
            node=f"nodes/{node}" if node else "",
            pids=pids,
            process_name=process_name,
            pod=pod,
            container_id=container_id,
            cgroup=cgroup,
            selector=selector,
        ),
        purpose=_meant(coverage_pb2.Purpose, purpose),
        period_ms=period_ms,
        budget_bytes=budget_bytes,
        priority=priority,
        namespace=namespace,
        rounds=coverage_pb2.AdaptiveRounds(
            limit=rounds, min_gain=min_gain, min_gain_per_core_second=min_gain_per_core_second
        )
        if rounds
        else None,
        weights=coverage_pb2.Weights(**weights) if weights is not None else None,
        retention_s=retention_s or 0,
        cause=cause,
        backend=_meant(controller_pb2.Backend, backend or "unspecified"),
    )


def _meant(enum: Any, name: str) -> Any:
    kind = enum.DESCRIPTOR.name.upper()
    known = [key.removeprefix(f"{kind}_").lower() for key in enum.keys()]  # noqa: SIM118 - no dictionary
    if name not in known:
        raise InvalidArgument(
            f"{name!r} is no {kind.lower()}",
            reason=f"{kind}_UNKNOWN",
            help=f"one of {', '.join(known[1:])}",
            metadata={"value": name},
        )
    return enum.Value(f"{kind}_{name.upper()}")


def session_set(sessions: Sequence[str] = (), *, operation: str = "", target: str = "") -> coverage_pb2.SessionSet:
    """Which sessions are meant: these, or what an operation recorded, or the newest of programs of this name."""
    return coverage_pb2.SessionSet(sessions=sessions, operation=operation, target=target)


def measure_value(measure: Measure) -> coverage_pb2.DiffCoverageRequest.Measure.ValueType:
    """As the API has it."""
    return coverage_pb2.DiffCoverageRequest.Measure.Value(f"MEASURE_{measure.upper()}")
