"""What can be asked for, as plain arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2

Purpose = Literal["anomaly", "profiling", "on_demand"]


def wish(
    *,
    pids: Sequence[int] = (),
    process_name: str = "",
    pod: str = "",
    container_id: str = "",
    cgroup: str = "",
    node: str = "",
    purpose: Purpose = "on_demand",
    period_ms: int = 0,
    budget_bytes: int = 0,
    priority: int | None = None,
    namespace: str = "",
    rounds: int = 0,
    backend: Literal["", "vpt", "kmod"] = "",
) -> coverage_pb2.CoverageRequest:
    """A target, named in one way, why it is recorded, and limits; what is left out the service decides.

    `pod`: `namespace/name` or UID; `node`: without `nodes/`, all nodes for ""; `namespace`: whose quota it counts
    against; `rounds`: of profiling, at most so many replicas one after the other.
    """
    return coverage_pb2.CoverageRequest(
        target=coverage_pb2.Target(
            node=f"nodes/{node}" if node else "",
            pids=pids,
            process_name=process_name,
            pod=pod,
            container_id=container_id,
            cgroup=cgroup,
        ),
        purpose=coverage_pb2.Purpose.Value(f"PURPOSE_{purpose.upper()}"),
        period_ms=period_ms,
        budget_bytes=budget_bytes,
        priority=priority,
        namespace=namespace,
        rounds=coverage_pb2.AdaptiveRounds(limit=rounds) if rounds else None,
        backend=controller_pb2.Backend.Value(f"BACKEND_{backend.upper() or 'UNSPECIFIED'}"),
    )
