"""What a session would get: the allocator's plan and its reasons, for whoever asks before beginning."""

from __future__ import annotations

from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.service.buffer_planner import plan_buffers, plan_cores
from permille.mesh.channels import Channels
from permille.mesh.errors import InvalidArgument


async def planned(channels: Channels, request: pb.PlanSessionRequest, budget_bytes: int) -> pb.PlanSessionResponse:
    """The plan for a request that was checked. Raises what the planners raise, InvalidArgument for an unknown unit."""
    match request.unit:
        case pb.BUFFER_UNIT_CORE:
            return await by_core(channels, request, budget_bytes)
        case pb.BUFFER_UNIT_UNSPECIFIED | pb.BUFFER_UNIT_THREAD:
            return await by_thread(channels, request, budget_bytes)
    raise InvalidArgument(
        f"unit is {request.unit}",
        reason="INVALID_SESSION_REQUEST",
        help="leave it out, or say BUFFER_UNIT_CORE or BUFFER_UNIT_THREAD",
        metadata={"field": "unit"},
    )


async def by_core(channels: Channels, request: pb.PlanSessionRequest, budget_bytes: int) -> pb.PlanSessionResponse:
    plan = await plan_cores(channels, request.pids, budget_bytes=budget_bytes, period_ms=request.period_ms)
    why = {**plan.reasons, **plan.left_out}
    return pb.PlanSessionResponse(
        unit=pb.BUFFER_UNIT_CORE,
        buffers=[
            pb.PlannedBuffer(unit=core, size_bytes=plan.buffers.get(core, 0), reason=why[core]) for core in sorted(why)
        ],
        expected_bytes=plan.expected_bytes,
        budget_bytes=budget_bytes,
    )


async def by_thread(channels: Channels, request: pb.PlanSessionRequest, budget_bytes: int) -> pb.PlanSessionResponse:
    plan = await plan_buffers(channels, request.pids, budget_bytes=budget_bytes, period_ms=request.period_ms)
    return pb.PlanSessionResponse(
        unit=pb.BUFFER_UNIT_THREAD,
        buffers=[
            pb.PlannedBuffer(unit=tid, size_bytes=size, reason=plan.reasons[tid])
            for threads in plan.buffers.values()
            for tid, size in threads.items()
        ],
        reserve=plan.reserve * len(request.pids),
        reserve_buffer_bytes=plan.reserve_buffer_bytes,
        expected_bytes=plan.expected_bytes,
        budget_bytes=budget_bytes,
    )
