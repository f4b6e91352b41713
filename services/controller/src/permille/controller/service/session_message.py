"""Sessions as messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp
from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain.planned_buffer import PlannedBuffer
from permille.controller.domain.progress import BufferProgress, Progress
from permille.controller.domain.session import Session, TraceOptions
from permille.controller.domain.session_request import SessionRequest
from permille.controller.domain.targets.resolution import Group
from permille.mesh.errors import InvalidArgument

# Others record by core.
BY_THREAD = ("vpt",)
RECORDING = (pb.BACKEND_VPT, pb.BACKEND_KMOD, pb.BACKEND_PERF)


def to_message(session: Session, progress: Progress | None = None) -> pb.Session:
    return pb.Session(
        name=session.name,
        state=pb.Session.State.Value(f"STATE_{session.state}"),
        backend=backend_value(session.backend),
        pids=session.pids,
        purpose=session.purpose,
        period_ms=session.period_ms,
        budget_bytes=session.budget_bytes,
        options=options_message(session.options),
        request_id=session.request_id,
        create_time=timestamp(session.create_ns),
        start_time=timestamp(session.start_ns),
        end_time=timestamp(session.end_ns),
        stop_reason=session.stop_reason,
        expected_bytes=session.expected_bytes,
        raw_bytes=session.raw_bytes,
        stored_bytes=session.stored_bytes,
        lost_bytes=session.lost_bytes,
        segments=session.segments,
        target_name=session.target_name,
        command_line=session.command_line,
        error_reason=session.error_reason,
        error_message=session.error_message,
        error_help=session.error_help,
        full_buffers=session.full_buffers,
        unit=unit_of(session),
        plan=map(planned_message, session.plan),
        counters=session.counters,
        lost_records=session.lost_records,
        retention_s=session.retention_s,
        cores=[core_message(buffer) for buffer in progress.buffers] if progress else (),
        remaining_ms=progress.remaining_ms if progress else 0,
    )


def listed_message(session: Session) -> pb.Session:
    """Without what is large."""
    return to_message(session.changed(plan=()))


def unit_of(session: Session) -> pb.BufferUnit.ValueType:
    if not session.plan:
        return pb.BUFFER_UNIT_UNSPECIFIED
    return pb.BUFFER_UNIT_THREAD if session.backend in BY_THREAD else pb.BUFFER_UNIT_CORE


def planned_message(planned: PlannedBuffer) -> pb.PlannedBuffer:
    return pb.PlannedBuffer(unit=planned.unit, size_bytes=planned.size_bytes, reason=planned.reason)


def core_message(buffer: BufferProgress) -> pb.CoreProgress:
    by_core = buffer.core >= 0
    return pb.CoreProgress(
        unit=pb.BUFFER_UNIT_CORE if by_core else pb.BUFFER_UNIT_THREAD,
        number=buffer.core if by_core else buffer.tid,
        written_bytes=buffer.size_bytes,
        buffer_bytes=buffer.buffer_bytes,
        lost_bytes=buffer.lost_bytes,
        lost_records=buffer.lost_records,
        full=buffer.full,
        stopped=buffer.stopped,
    )


def options_message(options: TraceOptions) -> pb.TraceOptions:
    return pb.TraceOptions(
        psb_freq=options.psb_freq,
        mtc_freq=options.mtc_freq,
        tsc=options.tsc,
        mtc=options.mtc,
        cyc=options.cyc,
        return_compression=options.return_compression,
        snapshot=options.snapshot,
    )


def timestamp(ns: int) -> Timestamp | None:
    """None for an unknown time."""
    if not ns:
        return None
    message = Timestamp()
    message.FromNanoseconds(ns)
    return message


def from_message(request: pb.StartSessionRequest) -> SessionRequest:
    """The wish; options that are not given are the defaults, those given are taken literally."""
    options = TraceOptions()
    if request.HasField("options"):
        options = TraceOptions(
            psb_freq=request.options.psb_freq,
            mtc_freq=request.options.mtc_freq,
            tsc=request.options.tsc,
            mtc=request.options.mtc,
            cyc=request.options.cyc,
            return_compression=request.options.return_compression,
            snapshot=request.options.snapshot,
        )
    return SessionRequest(
        request_id=request.request_id,
        pids=list(request.pids),
        period_ms=request.period_ms,
        purpose=request.purpose,
        budget_bytes=request.budget_bytes,
        options=options,
        backend=backend_name(request.backend),
        group=Group(request.group.cgroup, request.group.container_id, request.group.pod, request.group.selector),
        retention_s=request.retention_s,
        left_out=request.left_out,
        found=request.found,
    )


def backend_name(backend: pb.Backend.ValueType) -> str:
    """As sessions call it; "" for none. Raises InvalidArgument for one that nothing records by."""
    if backend == pb.BACKEND_UNSPECIFIED:
        return ""
    if backend not in RECORDING:
        raise InvalidArgument(
            f"backend is {backend}",
            reason="UNKNOWN_BACKEND",
            help=f"use one of {', '.join(pb.Backend.Name(known) for known in RECORDING)}, or leave it to the node",
        )
    return pb.Backend.Name(backend).removeprefix("BACKEND_").lower()


def backend_value(name: str) -> pb.Backend.ValueType:
    return pb.Backend.Value(f"BACKEND_{name.upper()}")
