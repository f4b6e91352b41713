"""How a session divides its memory, and why: one way for whoever begins it and for whoever only asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from permille.controller.domain.planned_buffer import PlannedBuffer
from permille.controller.domain.recording import Backend, CoreBuffers, ThreadBuffers
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
from permille.controller.service.buffer_planner import plan_buffers
from permille.controller.service.core_planner import plan_cores
from permille.controller.service.core_rates import CoreRates
from permille.mesh.channels import Channels


@dataclass(frozen=True)
class SessionPlan:
    """`planned`: each core that the target may run on, or each of its threads. `binary`: what it executes, where cores
    record."""

    buffers: ThreadBuffers | CoreBuffers
    planned: tuple[PlannedBuffer, ...]
    expected_bytes: int
    binary: str = ""


@dataclass(frozen=True)
class SessionPlanner:
    """Asks the allocator, with what earlier sessions of the binary wrote and how the target was switched lately."""

    channels: Channels
    rates: CoreRates
    switches: SwitchRecorder

    async def plan(self, backend: Backend, pids: Sequence[int], *, budget_bytes: int, period_ms: int) -> SessionPlan:
        """Looks at the processes for a moment. Raises NotFound (NO_SUCH_PROCESS), ResourceExhausted (BUDGET_TOO_SMALL);
        for threads also Unavailable without an allocator."""
        if backend.by_core:
            return await self._by_core(backend.name, pids, budget_bytes, period_ms)
        plan = await plan_buffers(self.channels, pids, budget_bytes=budget_bytes, period_ms=period_ms)
        return SessionPlan(
            buffers=ThreadBuffers(plan.buffers, plan.reserve, plan.reserve_buffer_bytes),
            planned=tuple(
                PlannedBuffer(tid, size, plan.reasons[tid])
                for threads in plan.buffers.values()
                for tid, size in threads.items()
            ),
            expected_bytes=plan.expected_bytes,
        )

    async def _by_core(self, backend: str, pids: Sequence[int], budget_bytes: int, period_ms: int) -> SessionPlan:
        plan = await plan_cores(
            self.channels, self.rates, self.switches, backend, pids, budget_bytes=budget_bytes, period_ms=period_ms
        )
        return SessionPlan(plan.buffers, plan.planned, plan.expected_bytes, plan.binary)
