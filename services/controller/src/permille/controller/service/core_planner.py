"""How much of a session's budget each core gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio
import structlog
from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.api.allocator.v1 import allocator_pb2_grpc as rpc
from permille.controller.domain import core_usage
from permille.controller.domain.recording import CoreBuffers
from permille.mesh.channels import Channels
from permille.mesh.errors import PermilleError, ResourceExhausted

SAMPLE_S = 0.1
PAGE_BYTES = 4096
MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 64 << 10, 128 << 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CorePlan:
    """`expected_bytes`: what the allocator expects to be written; without its answer all there is room for."""

    buffers: CoreBuffers
    expected_bytes: int


async def plan_cores(channels: Channels, pids: Sequence[int], *, budget_bytes: int, period_ms: int) -> CorePlan:
    """The cores that the processes may run on, with the allocator's sizes; equal ones where it has no answer.

    Samples where the processes run for 0.1 s. Raises ResourceExhausted (BUDGET_TOO_SMALL).
    """
    before = core_usage.look(pids)
    begin = time.monotonic_ns()
    await asyncio.sleep(SAMPLE_S)
    use = core_usage.between(before, core_usage.look(pids), time.monotonic_ns() - begin)
    require_room(use, budget_bytes)
    try:
        return await ask(channels, use, budget_bytes, period_ms)
    except (PermilleError, grpc.aio.AioRpcError, KeyError) as error:
        _log.warning("the allocator has no plan for the cores; all get the same", error=str(error))
        return equal_split(use, budget_bytes)


async def ask(channels: Channels, use: Mapping[int, float], budget_bytes: int, period_ms: int) -> CorePlan:
    """Raises KeyError for an answer that lacks a core, PermilleError or AioRpcError for none."""
    request = pb.PlanBuffersRequest(
        kind=pb.UNIT_KIND_CORE,
        usages=[pb.Usage(unit=core, share=share) for core, share in sorted(use.items())],
        budget_bytes=budget_bytes,
        period_ms=period_ms,
        min_buffer_bytes=MIN_BUFFER_BYTES,
        max_buffer_bytes=MAX_BUFFER_BYTES,
    )
    stub = rpc.AllocatorServiceStub(await channels.to("allocator"))
    answer = await stub.PlanBuffers(request)
    sizes = {buffer.unit: whole_pages(buffer.size_bytes) for buffer in answer.buffers}
    return CorePlan(CoreBuffers({core: sizes[core] for core in use}), answer.expected_bytes)


def equal_split(use: Mapping[int, float], budget_bytes: int) -> CorePlan:
    size = min(whole_pages(budget_bytes // len(use)), MAX_BUFFER_BYTES)
    return CorePlan(CoreBuffers(dict.fromkeys(use, size)), size * len(use))


def require_room(use: Mapping[int, float], budget_bytes: int) -> None:
    if budget_bytes < len(use) * MIN_BUFFER_BYTES:
        raise ResourceExhausted(
            f"a budget of {budget_bytes} bytes is too small for {len(use)} cores",
            reason="BUDGET_TOO_SMALL",
            help=f"give --buffer {len(use) * MIN_BUFFER_BYTES >> 10}KiB or more, or bind the process to fewer cores",
            metadata={"budget_bytes": str(budget_bytes), "cores": str(len(use))},
        )


def whole_pages(size: int) -> int:
    return max(size // PAGE_BYTES, 1) * PAGE_BYTES
