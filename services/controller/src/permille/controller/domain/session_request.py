"""What a session may be asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from permille.controller.domain.recording import Backend
from permille.controller.domain.session import Session, TraceOptions
from permille.controller.domain.targets.resolution import NO_GROUP, Group
from permille.mesh.errors import AlreadyExists, InvalidArgument, ResourceExhausted

PURPOSES = ("ANOMALY", "PROFILING", "ON_DEMAND")
MIN_PERIOD_MS = 1
MAX_PIDS = 64
# PSBFreq and MTCFreq are fields of four bits.
MAX_FREQUENCY = 15
MIN_BUDGET_BYTES = 1 << 20
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True)
class SessionRequest:
    """A wish for one session; zero or empty means the node's default."""

    request_id: str
    pids: Sequence[int]
    period_ms: int
    purpose: str = ""
    budget_bytes: int = 0
    options: TraceOptions = field(default_factory=TraceOptions)
    # "": the node's choice.
    backend: str = ""
    group: Group = NO_GROUP
    retention_s: int = 0
    left_out: int = 0
    # By a name or a group: some may have ended since.
    found: bool = False


def check(request: SessionRequest, *, max_period_ms: int) -> None:
    """Raises InvalidArgument naming the field, its value and what is allowed."""
    request.group.allow_one()
    if not request.pids:
        raise invalid("pids", "empty", "name at least one process")
    if len(request.pids) > MAX_PIDS:
        raise invalid("pids", f"{len(request.pids)} processes", f"a session records at most {MAX_PIDS}")
    for pid in request.pids:
        if not 0 < pid < 1 << 22:
            raise invalid("pids", str(pid), "a process id is between 1 and 4194303")
    if len(set(request.pids)) != len(request.pids):
        raise invalid("pids", f"{list(request.pids)}", "name every process once")
    if not MIN_PERIOD_MS <= request.period_ms <= max_period_ms:
        raise invalid(
            "period_ms",
            str(request.period_ms),
            f"a period is between {MIN_PERIOD_MS} and {max_period_ms} ms; the node's setting controller.max_period_ms"
            " allows more",
        )
    if request.purpose and request.purpose not in PURPOSES:
        raise invalid("purpose", repr(request.purpose), f"a purpose is one of {', '.join(PURPOSES)}")
    if request.request_id and not REQUEST_ID.fullmatch(request.request_id):
        raise invalid("request_id", repr(request.request_id), "up to 128 letters, digits and . _ : -")
    if request.budget_bytes and request.budget_bytes < MIN_BUDGET_BYTES:
        raise invalid("budget_bytes", str(request.budget_bytes), f"a budget is {MIN_BUDGET_BYTES} bytes or more")
    for name in ("psb_freq", "mtc_freq"):
        value = getattr(request.options, name)
        if not 0 <= value <= MAX_FREQUENCY:
            raise invalid(f"options.{name}", str(value), f"it is between 0 and {MAX_FREQUENCY}")
    if request.options.mtc and not request.options.tsc:
        raise invalid("options.mtc", "on while options.tsc is off", "MTC packets count from a TSC: switch tsc on too")


def check_snapshot(options: TraceOptions, backend: Backend) -> None:
    """Raises InvalidArgument where a snapshot is wanted of a back end that keeps what was written first."""
    if options.snapshot and not backend.snapshots:
        raise InvalidArgument(
            f"{backend.name} takes no snapshots: where a buffer is full, it keeps what was written first",
            reason="SNAPSHOT_UNSUPPORTED",
            help="trace with --backend perf, which keeps what was written last; or without --snapshot, with a larger"
            " --buffer or a shorter --for",
            metadata={"field": "options.snapshot", "backend": backend.name},
        )


def check_memory(budget_bytes: int, free_bytes: int, *, by_core: bool = False) -> None:
    """Raises ResourceExhausted when the trace buffers would not fit into shared memory, or the kernel's `by_core`."""
    if budget_bytes > free_bytes and by_core:
        raise ResourceExhausted(
            f"the budget of {budget_bytes} bytes is more than the {free_bytes} bytes that trace buffers may still have",
            reason="TRACE_MEMORY_FULL",
            help=f"set budget_bytes to {free_bytes} or less, or raise the kernel module's limit:"
            " /sys/module/permille/parameters/memory_limit_mb",
            metadata={"budget_bytes": str(budget_bytes), "free_bytes": str(free_bytes)},
        )
    if budget_bytes > free_bytes:
        raise ResourceExhausted(
            f"the budget of {budget_bytes} bytes is more than the {free_bytes} bytes that are free in shared memory",
            reason="SHARED_MEMORY_FULL",
            help=f"set budget_bytes to {free_bytes} or less, or enlarge it: sudo mount -o remount,size=SIZE /dev/shm",
            metadata={"budget_bytes": str(budget_bytes), "free_bytes": str(free_bytes)},
        )


def check_spool(spooled_bytes: int, budget_bytes: int, waiting: Sequence[Session]) -> None:
    """Raises ResourceExhausted when recordings that wait for the object store fill what they may have on disk.

    The last one that was let in may go beyond the budget, by what it recorded.
    """
    if spooled_bytes < budget_bytes or not waiting:
        return
    why = next((session.error_message for session in waiting if session.error_message), "")
    raise ResourceExhausted(
        f"{len(waiting)} recordings with {spooled_bytes} bytes wait for the object store"
        + (f": {why}" if why else ", which is slower than they come"),
        reason="SPOOL_FULL",
        help="wait until they are stored, see to the store (`permille doctor`), or allow more on disk: the node's"
        f" setting controller.spool_budget_bytes, now {budget_bytes}",
        metadata={"spooled_bytes": str(spooled_bytes), "spool_budget_bytes": str(budget_bytes)},
        retry_after_s=5.0,
    )


def check_repeated(request: SessionRequest, session: Session) -> None:
    """Raises AlreadyExists when a request_id comes again with another wish."""
    wanted = (request.period_ms, request.backend or session.backend)
    same = set(session.pids) <= set(request.pids) if request.found else session.pids == tuple(request.pids)
    if not same or wanted != (session.period_ms, session.backend):
        raise AlreadyExists(
            f"request_id {request.request_id!r} already started {session.name} with other pids, another period or"
            " another back end",
            reason="REQUEST_ID_REUSED",
            help="use a new request_id for a new session",
            metadata={"session": session.name},
        )


def invalid(name: str, value: str, way_out: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name} is {value}", reason="INVALID_SESSION_REQUEST", help=way_out, metadata={"field": name}
    )
