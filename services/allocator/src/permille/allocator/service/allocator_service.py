"""AllocatorService: messages to wishes, plans to messages."""

from __future__ import annotations

import grpc
from permille.allocator.domain import coreset, usage_aware
from permille.allocator.service import core_messages
from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.api.allocator.v1 import allocator_pb2_grpc as rpc
from permille.mesh.errors import InvalidArgument

# Where nobody measured: a core, and a thread of the emulated processor, which runs many times slower.
DEFAULT_BYTES_PER_BUSY_SECOND = {
    pb.UNIT_KIND_CORE: core_messages.DEFAULT_BYTES_PER_BUSY_SECOND,
    pb.UNIT_KIND_THREAD: 64 << 20,
}


class AllocatorService(rpc.AllocatorServiceServicer):
    """Stateless: any number of replicas answer alike."""

    async def PlanBuffers(  # noqa: N802
        self, request: pb.PlanBuffersRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> pb.PlanBuffersResponse:
        if request.HasField("core_target"):
            return core_messages.plan_message(coreset.plan_cores(core_messages.wish_of(request)))
        plan = usage_aware.plan_buffers(wish_of(request))
        return pb.PlanBuffersResponse(
            buffers=[pb.Buffer(unit=unit, size_bytes=size) for unit, size in plan.buffers.items()],
            reserve_buffer_bytes=plan.reserve_buffer_bytes,
            total_bytes=plan.total_bytes,
            expected_bytes=plan.expected_bytes,
        )

    async def LearnRate(  # noqa: N802
        self, request: pb.LearnRateRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> pb.LearnRateResponse:
        return core_messages.learned_message(core_messages.learned(request))


def wish_of(request: pb.PlanBuffersRequest) -> usage_aware.Wish:
    if request.kind not in DEFAULT_BYTES_PER_BUSY_SECOND:
        raise InvalidArgument(
            f"kind is {request.kind}",
            reason="INVALID_BUFFER_WISH",
            help="kind has to be UNIT_KIND_CORE or UNIT_KIND_THREAD",
            metadata={"field": "kind"},
        )
    return usage_aware.Wish(
        usages=[usage_aware.Usage(usage.unit, usage.share) for usage in request.usages],
        budget_bytes=request.budget_bytes,
        period_ms=request.period_ms,
        bytes_per_busy_second=request.bytes_per_busy_second or DEFAULT_BYTES_PER_BUSY_SECOND[request.kind],
        reserve=request.reserve,
        min_buffer_bytes=request.min_buffer_bytes or usage_aware.MIN_BUFFER_BYTES,
        max_buffer_bytes=request.max_buffer_bytes or usage_aware.MAX_BUFFER_BYTES,
    )
