"""Asks the allocator how to divide a session's budget among the threads of its processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio
from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.api.allocator.v1 import allocator_pb2_grpc as rpc
from permille.controller.domain import thread_usage
from permille.mesh.channels import Channels
from permille.mesh.interceptor import from_rpc_error

SAMPLE_S = 0.1
# Threads that a process may still start during a session and be recorded.
RESERVE = 16


@dataclass(frozen=True)
class BufferPlan:
    """Sizes in bytes: of each process's threads, and of each of `reserve` further buffers per process."""

    buffers: Mapping[int, Mapping[int, int]]
    reserve: int
    reserve_buffer_bytes: int
    expected_bytes: int


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
    stub = rpc.AllocatorServiceStub(await channels.to("allocator"))
    try:
        plan = await stub.PlanBuffers(request)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
    sizes = {buffer.unit: buffer.size_bytes for buffer in plan.buffers}
    return BufferPlan(
        buffers={pid: {tid: sizes[tid] for tid in threads} for pid, threads in usage.items()},
        reserve=RESERVE,
        reserve_buffer_bytes=plan.reserve_buffer_bytes,
        expected_bytes=plan.expected_bytes,
    )


async def sample(pids: Sequence[int]) -> dict[int, dict[int, float]]:
    before = {pid: thread_usage.cpu_ns(pid) for pid in pids}
    begin = time.monotonic_ns()
    await asyncio.sleep(SAMPLE_S)
    elapsed = time.monotonic_ns() - begin
    return {pid: thread_usage.shares(used, thread_usage.cpu_ns(pid), elapsed) for pid, used in before.items()}
