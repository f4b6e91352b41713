"""Asks the allocator how to divide a session's budget: among the threads of its processes, or among cores."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.api.allocator.v1 import allocator_pb2_grpc as rpc
from permille.controller.domain import thread_usage
from permille.controller.domain.node_use import use_sample
from permille.controller.domain.node_use.use_sample import UseSample
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
from permille.controller.domain.switches.switch_records import SwitchRecord
from permille.controller.service.core_target import confines, core_target
from permille.mesh.channels import Channels
from permille.mesh.interceptor import from_rpc_error

SAMPLE_S = 0.1
# Threads that a process may still start during a session and be recorded.
RESERVE = 16
# What a plan by cores looks back on. The scheduler's own averages forget half in 32 ms (Linux, kernel/sched/pelt.c).
HISTORY_SLICES = 5
SLICE_S = 0.06


@dataclass(frozen=True)
class BufferPlan:
    """Sizes in bytes: of each process's threads, and of each of `reserve` further buffers per process.

    `reasons`: by thread, what its size is from.
    """

    buffers: Mapping[int, Mapping[int, int]]
    reserve: int
    reserve_buffer_bytes: int
    expected_bytes: int
    reasons: Mapping[int, str] = field(default_factory=dict)


async def plan_buffers(channels: Channels, pids: Sequence[int], *, budget_bytes: int, period_ms: int) -> BufferPlan:
    """Samples the threads for 0.1 s. Raises PermilleError: BUDGET_TOO_SMALL, or Unavailable without an allocator."""
    usage = await sample(pids)
    request = pb.PlanBuffersRequest(
        kind=pb.UNIT_KIND_THREAD,
        usages=[pb.Usage(unit=tid, share=share) for threads in usage.values() for tid, share in threads.items()],
        budget_bytes=budget_bytes,
        period_ms=period_ms,
        reserve=RESERVE * len(pids),
    )
    plan = await ask(channels, request)
    sizes = {buffer.unit: buffer.size_bytes for buffer in plan.buffers}
    return BufferPlan(
        buffers={pid: {tid: sizes[tid] for tid in threads} for pid, threads in usage.items()},
        reserve=RESERVE,
        reserve_buffer_bytes=plan.reserve_buffer_bytes,
        expected_bytes=plan.expected_bytes,
        reasons={
            tid: f"it had {share:.0%} of a core in the last {SAMPLE_S:g} s"
            for threads in usage.values()
            for tid, share in threads.items()
        },
    )


@dataclass(frozen=True)
class CorePlan:
    """Sizes in bytes by core, the reason for each, and for each core that the target may run on and is not traced."""

    buffers: Mapping[int, int]
    expected_bytes: int
    reasons: Mapping[int, str]
    left_out: Mapping[int, str] = field(default_factory=dict)
    budget_bytes: int = 0


async def plan_cores(
    channels: Channels,
    pids: Sequence[int],
    *,
    budget_bytes: int,
    period_ms: int,
    bytes_per_busy_second: int = 0,
    min_buffer_bytes: int = 0,
    learned: pb.LearnedRate | None = None,
    switches: SwitchRecorder | None = None,
) -> CorePlan:
    """Which cores are traced, and how large each one's buffer is. Looks at the processes for 0.3 s.

    `bytes_per_busy_second`: what this back end writes at most; `learned`: what earlier sessions of the binary wrote,
    which counts more (core_rates.py). `min_buffer_bytes`: 0 for the allocator's 4 MiB. `switches`: have the history
    recorded exactly; without, or where that is not possible, it is sampled. Raises PermilleError: NO_SUCH_PROCESS,
    BUDGET_TOO_SMALL, Unavailable without an allocator.
    """
    samples, records = await history(pids, switches)
    target = core_target(confines(pids, samples[-1].cores), samples, records, seed=samples[-1].time_ns)
    if learned is not None:
        target.learned.CopyFrom(learned)
    plan = await ask(
        channels,
        pb.PlanBuffersRequest(
            kind=pb.UNIT_KIND_CORE,
            budget_bytes=budget_bytes,
            period_ms=period_ms,
            bytes_per_busy_second=bytes_per_busy_second,
            min_buffer_bytes=min_buffer_bytes,
            core_target=target,
        ),
    )
    return CorePlan(
        buffers={buffer.unit: buffer.size_bytes for buffer in plan.buffers},
        expected_bytes=plan.expected_bytes,
        reasons={buffer.unit: buffer.reason for buffer in plan.buffers},
        left_out={core.core: core.reason for core in plan.left_out},
        budget_bytes=plan.budget_bytes,
    )


async def ask(channels: Channels, request: pb.PlanBuffersRequest) -> pb.PlanBuffersResponse:
    stub = rpc.AllocatorServiceStub(await channels.to("allocator"))
    try:
        return await stub.PlanBuffers(request)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None


async def history(pids: Sequence[int], switches: SwitchRecorder | None) -> tuple[list[UseSample], list[SwitchRecord]]:
    """One sample more than slices, and in time order the switches between the first and the last one, stamped alike."""
    with tempfile.TemporaryDirectory(prefix="permille-history-") as folder:
        name, path = f"plan-{secrets.token_hex(8)}", Path(folder) / "switches"
        recording = switches is not None and not await switches.begin(name, pids, path)
        try:
            samples = [await asyncio.to_thread(use_sample.sample, pids, time.monotonic_ns())]
            for _ in range(HISTORY_SLICES):
                await asyncio.sleep(SLICE_S)
                samples.append(await asyncio.to_thread(use_sample.sample, pids, time.monotonic_ns()))
        finally:
            if switches is not None and recording:
                await switches.end(name)
        return samples, list(switch_records.records_of(switch_records.in_time_order(path)))


async def sample(pids: Sequence[int]) -> dict[int, dict[int, float]]:
    before = {pid: thread_usage.cpu_ns(pid) for pid in pids}
    begin = time.monotonic_ns()
    await asyncio.sleep(SAMPLE_S)
    elapsed = time.monotonic_ns() - begin
    return {pid: thread_usage.shares(used, thread_usage.cpu_ns(pid), elapsed) for pid, used in before.items()}
