"""What the allocator is told of a target and its node, for a plan by cores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.controller.domain.cgroup_tree import CgroupTree
from permille.controller.domain.node_use import pressure
from permille.controller.domain.node_use.cpu_limits import CpuLimits, limits, relative_weight
from permille.controller.domain.node_use.placement import Placement, last_level_caches, placement
from permille.controller.domain.node_use.run_history import history_of, runs_of, shares_by_slice
from permille.controller.domain.node_use.use_sample import UseSample, others_shares, own_shares
from permille.controller.domain.switches.switch_records import SwitchRecord
from permille.mesh.errors import NotFound

NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Confines:
    """Where a target may run and is, over all of its processes; `quota`: cores' worth of time; `weight`: against the
    cgroups beside its own, 1 as much."""

    allowed: frozenset[int]
    current: frozenset[int]
    threads: int
    quota: float
    weight: float = 1.0


def confines(pids: Sequence[int], online: Iterable[int]) -> Confines:
    """Affinity within cpusets, over all processes that live. Raises NotFound (NO_SUCH_PROCESS) when none does."""
    tree = CgroupTree()
    found: list[tuple[Placement, CpuLimits]] = []
    for pid in pids:
        try:
            found.append((placement(pid), limits(pid, tree)))
        except ProcessLookupError:
            continue
    if not any(where.last for where, _ in found):
        raise NotFound(
            f"none of the processes {', '.join(map(str, pids))} is there any more",
            reason="NO_SUCH_PROCESS",
            help="start the program again, or choose another process",
        )
    there = frozenset(online)
    allowed = [where.allowed & there & (limit.cpuset if limit.cpuset is not None else there) for where, limit in found]
    return Confines(
        allowed=frozenset().union(*allowed),
        current=frozenset(core for where, _ in found for core in where.last.values()),
        threads=sum(len(where.last) for where, _ in found),
        quota=math.fsum({limit.quota_of: limit.quota for _, limit in found}.values()),
        weight=max(map(relative_weight, {limit.levels for _, limit in found})),
    )


def core_target(
    confined: Confines, samples: Sequence[UseSample], records: Sequence[SwitchRecord], *, seed: int
) -> pb.CoreTarget:
    """The message; `records` (CLOCK_MONOTONIC) say of the cores that they name what the samples can only guess."""
    slice_ns = max(1, (samples[-1].time_ns - samples[0].time_ns) // (len(samples) - 1))
    sampled = own_shares(samples)
    own = {**sampled, **recorded_shares(records, samples[0].time_ns, len(samples) - 1, slice_ns)}
    others = others_shares(samples, own)
    caches = last_level_caches()
    never = (0.0,) * (len(samples) - 1)
    return pb.CoreTarget(
        cores=[
            pb.CoreUse(
                core=core,
                others_share=others.get(core, 0.0),
                target_shares=own.get(core, never),
                current=core in confined.current,
                cache=caches.get(core, core),
            )
            for core in sorted(confined.allowed)
        ],
        online_cores=max(len(samples[-1].cores), len(confined.allowed)),
        quota_cores=confined.quota if confined.quota < math.inf else 0.0,
        threads=confined.threads,
        slice_ms=max(1, slice_ns // NS_PER_MS),
        memory_pressure=min(100.0, pressure.some_avg10()),
        seed=seed,
        weight=confined.weight,
    )


def recorded_shares(
    records: Sequence[SwitchRecord], begin_ns: int, slices: int, slice_ns: int
) -> Mapping[int, tuple[float, ...]]:
    runs = runs_of(history_of(records), begin_ns, begin_ns + slices * slice_ns)
    return shares_by_slice(runs, begin_ns, slices, slice_ns)
