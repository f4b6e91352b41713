"""What each core of a session gets, and what the session teaches for the next one of the same binary."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from permille.controller.domain.node_use.core_observations import CoreObservation, CoreWritten, observations
from permille.controller.domain.node_use.placement import placement
from permille.controller.domain.planned_buffer import PlannedBuffer
from permille.controller.domain.recording import CoreBuffers
from permille.controller.domain.switches import switch_records
from permille.controller.service import buffer_planner
from permille.controller.service.core_rates import binary_of
from permille.mesh.errors import Code, PermilleError, ResourceExhausted

if TYPE_CHECKING:
    from pathlib import Path

    from permille.api.allocator.v1 import allocator_pb2 as pb
    from permille.controller.domain.recording import Recording
    from permille.controller.domain.session import Session
    from permille.controller.domain.switches.switch_recorder import SwitchRecorder
    from permille.controller.service.core_rates import CoreRates
    from permille.mesh.channels import Channels

PAGE_BYTES = 4096
MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 64 << 10, 128 << 20
_NO_ANSWER = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNIMPLEMENTED)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CorePlan:
    """`planned`: all cores that the target may run on. `binary`: what it executes."""

    buffers: CoreBuffers
    planned: tuple[PlannedBuffer, ...]
    expected_bytes: int
    binary: str = ""


async def plan_cores(
    channels: Channels,
    rates: CoreRates,
    switches: SwitchRecorder,
    backend: str,
    pids: Sequence[int],
    *,
    budget_bytes: int,
    period_ms: int,
) -> CorePlan:
    """The allocator's plan; equal buffers on all cores that the processes may run on where it has no answer.

    Raises NotFound (NO_SUCH_PROCESS), ResourceExhausted (BUDGET_TOO_SMALL).
    """
    binary = await binary_of(pids[0])
    try:
        plan = await buffer_planner.plan_cores(
            channels,
            pids,
            budget_bytes=budget_bytes,
            period_ms=period_ms,
            learned=await _known(rates, backend, binary),
            switches=switches,
        )
    except PermilleError as error:
        if error.code not in _NO_ANSWER:
            raise
        _log.warning("the allocator has no plan for the cores; all get the same", error=error.message)
        allowed = await asyncio.to_thread(allowed_cores, pids)
        return equal_split(sorted(allowed), budget_bytes, binary)
    sizes = {core: whole_pages(size) for core, size in plan.buffers.items()}
    why = {**plan.reasons, **plan.left_out}
    planned = tuple(PlannedBuffer(core, sizes.get(core, 0), why[core]) for core in sorted(why))
    return CorePlan(CoreBuffers(sizes), planned, plan.expected_bytes, binary)


def observed(recording: Recording, switches: Path) -> Sequence[CoreObservation]:
    """What the cores of a finished recording wrote, with the file of its switch records, in time order."""
    clock = recording.realtime()
    written = {
        stream.core: CoreWritten(stream.size_bytes, stream.full or stream.overwritten) for stream in recording.streams()
    }
    ticks_per_ms = (clock.tsc1 - clock.tsc0) / max(1, clock.ns1 - clock.ns0) * 1e6
    if not written or ticks_per_ms <= 0:
        return ()
    return observations(written, switch_records.read(switches), clock.tsc0, clock.tsc1, ticks_per_ms=ticks_per_ms)


async def learn(rates: CoreRates, session: Session, seen: Sequence[CoreObservation], binary: str) -> None:
    """Keeps what the session's cores wrote; a session whose lesson is lost is a good one nevertheless."""
    if not binary or not seen:
        return
    try:
        await rates.learn(session.backend, binary, seen)
    except PermilleError as error:
        _log.warning("what a session wrote on each core is not kept", session=session.name, error=error.message)


def allowed_cores(pids: Sequence[int]) -> set[int]:
    """Where the processes may run."""
    found: set[int] = set()
    for pid in pids:
        try:
            found |= placement(pid).allowed
        except ProcessLookupError:
            continue
    return found


def equal_split(cores: Sequence[int], budget_bytes: int, binary: str = "") -> CorePlan:
    """Raises ResourceExhausted (BUDGET_TOO_SMALL)."""
    least = max(1, len(cores)) * MIN_BUFFER_BYTES
    if budget_bytes < least:
        raise ResourceExhausted(
            f"a budget of {budget_bytes} bytes is too small for {len(cores)} cores",
            reason="BUDGET_TOO_SMALL",
            help=f"give --buffer {least >> 10}KiB or more, or bind the process to fewer cores",
            metadata={"budget_bytes": str(budget_bytes), "cores": str(len(cores))},
        )
    size = whole_pages(budget_bytes // max(1, len(cores)))
    planned = tuple(PlannedBuffer(core, size, "an equal part: the allocator does not answer") for core in cores)
    return CorePlan(CoreBuffers(dict.fromkeys(cores, size)), planned, size * len(cores), binary)


def whole_pages(size: int) -> int:
    """At least one page, at most what the module takes for a core."""
    return min(max(size // PAGE_BYTES, 1) * PAGE_BYTES, MAX_BUFFER_BYTES)


async def _known(rates: CoreRates, backend: str, binary: str) -> pb.LearnedRate | None:
    try:
        return await rates.of(backend, binary) if binary else None
    except PermilleError:
        return None
