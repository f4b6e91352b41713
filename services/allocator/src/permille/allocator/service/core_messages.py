"""Messages to wishes for cores, core plans to messages, and what sessions taught."""

from __future__ import annotations

import math

from permille.allocator.domain import core_use
from permille.allocator.domain.core_use import Binding, CoreUse, CoreWish, invalid
from permille.allocator.domain.coreset import CorePlan
from permille.allocator.domain.learned import CoreObservation, Rate, learn
from permille.api.allocator.v1 import allocator_pb2 as pb

# What a real core writes in a second with the default options: Intel's figure of some hundred MB/s of packets.
DEFAULT_BYTES_PER_BUSY_SECOND = 256 << 20
DEFAULT_SLICE_MS = 100
BINDINGS = {
    pb.BINDING_UNSPECIFIED: None,
    pb.BINDING_CPU_SET: Binding.CPU_SET,
    pb.BINDING_CPU_SHARE: Binding.CPU_SHARE,
}


def wish_of(request: pb.PlanBuffersRequest) -> CoreWish:
    """Raises InvalidArgument where core_target does not go with the rest of the request."""
    target = request.core_target
    if request.kind != pb.UNIT_KIND_CORE:
        raise invalid("kind", str(request.kind), "core_target goes with UNIT_KIND_CORE")
    if request.usages or request.reserve:
        raise invalid("core_target", "given besides usages or a reserve", "give either; cores have no reserve")
    if target.binding not in BINDINGS:
        raise invalid("binding", str(target.binding), "it has to be BINDING_CPU_SET, BINDING_CPU_SHARE or unspecified")
    return CoreWish(
        cores=[
            CoreUse(use.core, use.others_share, tuple(use.target_shares), use.current, use.cache)
            for use in target.cores
        ],
        online=target.online_cores,
        period_ms=request.period_ms,
        rate=rate_of(request),
        budget_bytes=request.budget_bytes or core_use.DEFAULT_BUDGET_BYTES,
        quota=target.quota_cores or math.inf,
        weight=target.weight or 1.0,
        threads=target.threads or 1,
        slice_ms=target.slice_ms or DEFAULT_SLICE_MS,
        pressure=target.memory_pressure,
        seed=target.seed,
        binding=BINDINGS[target.binding],
        min_buffer_bytes=request.min_buffer_bytes or core_use.MIN_BUFFER_BYTES,
        max_buffer_bytes=request.max_buffer_bytes or core_use.MAX_BUFFER_BYTES,
    )


def rate_of(request: pb.PlanBuffersRequest) -> Rate:
    """What was learned, else what the back end measured, else the default."""
    known = known_rate(request.core_target.learned)
    return known or Rate(float(request.bytes_per_busy_second or DEFAULT_BYTES_PER_BUSY_SECOND))


def known_rate(message: pb.LearnedRate) -> Rate | None:
    if not message.sessions:
        return None
    for field in ("bytes_per_busy_second", "spread"):
        value = getattr(message, field)
        if not 0 <= value < math.inf:
            raise invalid(f"learned.{field}", str(value), "it has to be 0 or more, and finite")
    return Rate(message.bytes_per_busy_second, min(1.0, message.spread), message.sessions)


def plan_message(plan: CorePlan) -> pb.PlanBuffersResponse:
    bindings = {binding: value for value, binding in BINDINGS.items()}
    return pb.PlanBuffersResponse(
        buffers=[
            pb.Buffer(unit=core, size_bytes=size, reason=plan.reasons[core]) for core, size in plan.buffers.items()
        ],
        total_bytes=plan.total_bytes,
        expected_bytes=plan.expected_bytes,
        binding=bindings[plan.binding],
        left_out=[pb.LeftOutCore(core=core, reason=reason) for core, reason in plan.left_out.items()],
        budget_bytes=plan.budget_bytes,
    )


def learned(request: pb.LearnRateRequest) -> Rate | None:
    session = []
    for core in request.cores:
        if not 0 <= core.run_ms < math.inf or core.size_bytes < 0:
            value = f"{core.run_ms} ms and {core.size_bytes} bytes for core {core.core}"
            raise invalid("cores", value, "neither can be negative")
        session.append(CoreObservation(core.core, core.run_ms, core.size_bytes, core.full))
    return learn(known_rate(request.known), session)


def learned_message(rate: Rate | None) -> pb.LearnRateResponse:
    if rate is None:
        return pb.LearnRateResponse()
    message = pb.LearnedRate(
        bytes_per_busy_second=rate.bytes_per_busy_second, spread=rate.spread, sessions=rate.sessions
    )
    return pb.LearnRateResponse(learned=message)
