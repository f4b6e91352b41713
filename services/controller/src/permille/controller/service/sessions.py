"""Starts, stops and resumes the sessions of this node."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence

from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain import processes, session_request
from permille.controller.domain.recording import Backend, RecordableProcess
from permille.controller.domain.session import Session, State, parse_name
from permille.controller.domain.session_budget import SessionBudget
from permille.controller.domain.session_request import SessionRequest
from permille.controller.service.session_plan import backend_of, plan_message
from permille.controller.service.session_registry import SessionRegistry, already_traced
from permille.controller.service.session_runner import Parts, SessionRunner
from permille.mesh.errors import FailedPrecondition

GARBAGE_S = 60.0


class Sessions:
    """The node's sessions as things that can be started and stopped."""

    def __init__(
        self, parts: Parts, node: str, *, budget: SessionBudget, max_period_ms: int, spool_budget_bytes: int
    ) -> None:
        self._parts = parts
        self._node = node
        self._budget = budget
        self._max_period_ms = max_period_ms
        self._spool_budget_bytes = spool_budget_bytes
        self._runners: dict[str, SessionRunner] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def registry(self) -> SessionRegistry:
        return self._parts.registry

    async def start(self, request: SessionRequest) -> Session:
        """The new session, or the one that this request_id started before.

        Raises InvalidArgument (SNAPSHOT_UNSUPPORTED too), NotFound, PermissionDenied, NotOnThisMachine,
        FailedPrecondition (NOT_RECORDABLE, ALREADY_TRACED), ResourceExhausted (SHARED_MEMORY_FULL, TRACE_MEMORY_FULL,
        SPOOL_FULL), AlreadyExists (REQUEST_ID_REUSED), Unavailable (etcd).
        """
        session_request.check(request, max_period_ms=self._max_period_ms)
        request_id = request.request_id or secrets.token_hex(16)
        session, created = await self.registry.create(request_id, lambda: self._new(request, request_id))
        if created:
            self._run(SessionRunner(self._parts, session), session)
        else:
            session_request.check_repeated(request, session)
        return session

    async def plan(self, request: pb.PlanSessionRequest) -> pb.PlanSessionResponse:
        """How a session would divide its memory. Raises what `start` raises for its target and its memory, and what
        planning does."""
        session_request.check(
            SessionRequest("", list(request.pids), request.period_ms, budget_bytes=request.budget_bytes),
            max_period_ms=self._max_period_ms,
        )
        backend = backend_of(request, self._parts.backends)
        budget = request.budget_bytes or self._budget.of(backend)
        # Who asks for a unit asks what would be, on a machine where it need not work.
        if request.unit == pb.BUFFER_UNIT_UNSPECIFIED:
            session_request.check_memory(budget, backend.free_bytes(), by_core=backend.by_core)
        plan = await self._parts.planner.plan(backend, request.pids, budget_bytes=budget, period_ms=request.period_ms)
        return plan_message(plan, budget)

    async def stop(self, name: str) -> Session:
        """Ends a recording before its period is over; a session past its recording is left as it is."""
        node, session_id = parse_name(name)
        session = await self.registry.get(name)
        if node != self._node:
            raise FailedPrecondition(
                f"{name} runs on another node than {self._node}",
                reason="OTHER_NODE",
                help=f"ask the controller of {node}",
            )
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.stop()
        return session

    def resume(self) -> None:
        """Carries on what an earlier controller of this node left unfinished."""
        for session in self._parts.journal.unfinished():
            self.registry.adopt(session)
            self._run(SessionRunner(self._parts, session, resumed=True), session)

    async def close(self) -> None:
        """Leaves the sessions to the next controller: recordings end by their own timers, the journal has the rest."""
        await asyncio.gather(*(runner.leave() for runner in self._runners.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def collect_garbage(self) -> None:
        """Runs until it is cancelled."""
        while True:
            known = {session.id for session in self.registry.active()}
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._parts.backends.collect_garbage, known)
            await asyncio.sleep(GARBAGE_S)

    def _new(self, request: SessionRequest, request_id: str) -> Session:
        waiting = [session for session in self.registry.active() if session.state == State.STORING]
        session_request.check_spool(self._parts.journal.size_bytes(), self._spool_budget_bytes, waiting)
        # Of none that is left the first is told to be gone.
        pids = (processes.left_of(request.pids) if request.found else ()) or tuple(request.pids)
        backend = self._parts.backends.choose(request.backend, pids)
        session_request.check_snapshot(request.options, backend)
        targets = self._targets(backend, pids)
        free = backend.free_bytes()
        budget = request.budget_bytes or self._budget.of(backend)
        session_request.check_memory(budget, free, by_core=backend.by_core)
        now = time.time()
        return Session(
            node=self._node,
            # Sorts by time, which is how sessions are listed.
            id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}",
            request_id=request_id,
            pids=pids,
            purpose=request.purpose or "ON_DEMAND",
            period_ms=request.period_ms,
            budget_bytes=budget,
            options=request.options,
            target_name=targets[0].name,
            command_line=targets[0].command_line,
            create_ns=int(now * 1e9),
            backend=backend.name,
            group=request.group,
            retention_s=request.retention_s,
            left_out=request.left_out,
            found=request.found,
        )

    def _targets(self, backend: Backend, pids: Sequence[int]) -> list[RecordableProcess]:
        targets = []
        for pid in pids:
            process = backend.process(pid)
            if process is None:
                raise processes.not_recordable(pid)
            targets.append(process)
            if process.session:
                own = next((one.name for one in self.registry.active() if one.id == process.session), "")
                raise already_traced(pid, own or f"session {process.session} of another controller")
        return targets

    def _run(self, runner: SessionRunner, session: Session) -> None:
        self._runners[session.id] = runner
        task = asyncio.create_task(runner.run(), name=session.name)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, session.id))

    def _ended(self, task: asyncio.Task[None], session_id: str) -> None:
        self._tasks.discard(task)
        self._runners.pop(session_id, None)
