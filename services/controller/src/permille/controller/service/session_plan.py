"""What a session would get, for whoever asks before beginning."""

from __future__ import annotations

from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain.backends import Backends
from permille.controller.domain.recording import Backend, ThreadBuffers
from permille.controller.service.session_message import backend_name, planned_message
from permille.controller.service.session_planner import SessionPlan
from permille.mesh.errors import InvalidArgument

UNITS = {True: pb.BUFFER_UNIT_CORE, False: pb.BUFFER_UNIT_THREAD}


def backend_of(request: pb.PlanSessionRequest, backends: Backends) -> Backend:
    """What would record. Where a unit is asked for it need not work on this machine.

    Raises InvalidArgument for an unknown unit, or one that the back end does not attach buffers to, and what choosing
    raises.
    """
    wanted = backend_name(request.backend)
    if request.unit == pb.BUFFER_UNIT_UNSPECIFIED:
        return backends.choose(wanted, request.pids)
    candidates = [backends.of(wanted)] if wanted else backends.by_preference()
    fitting = (backend for backend in candidates if UNITS[backend.by_core] == request.unit)
    found = next(fitting, None)
    if found is None:
        raise InvalidArgument(
            f"unit is {request.unit}" + (f", and {wanted} has no such buffers" if wanted else ""),
            reason="INVALID_SESSION_REQUEST",
            help="leave it out, or say BUFFER_UNIT_CORE (kmod, perf) or BUFFER_UNIT_THREAD (vpt)",
            metadata={"field": "unit"},
        )
    return found


def plan_message(plan: SessionPlan, budget_bytes: int) -> pb.PlanSessionResponse:
    threads = plan.buffers if isinstance(plan.buffers, ThreadBuffers) else None
    return pb.PlanSessionResponse(
        unit=UNITS[threads is None],
        buffers=map(planned_message, plan.planned),
        reserve=threads.reserve * len(threads.sizes) if threads else 0,
        reserve_buffer_bytes=threads.reserve_buffer_bytes if threads else 0,
        expected_bytes=plan.expected_bytes,
        budget_bytes=budget_bytes,
    )
