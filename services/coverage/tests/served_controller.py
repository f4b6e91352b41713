"""A small controller of the same API, so that it can be made slow, broken or absent at will; the real one meets
coverage in the whole-mesh tests.
"""

# ruff: noqa: N802 - the methods are named as gRPC names them

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from permille.api.controller.v1 import controller_pb2, controller_pb2_grpc
from permille.mesh.auth import INTERNAL
from permille.mesh.config import MeshConfig
from permille.mesh.errors import FailedPrecondition, NotFound
from permille.mesh.server import ServerContext

from .serving import serving

Session = controller_pb2.Session
RAW_BYTES = 5 << 20


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    """Sessions that record until `go_on` is set, as a real node's go on while its controller restarts."""

    def __init__(self, node: str, zone: str = "") -> None:
        self.node = node
        self.zone = zone
        self.processes = {11: "redis-server", 12: "redis-server", 13: "gzip"}
        self.others = {99: "nginx"}
        self.backend = controller_pb2.BACKEND_VPT
        self.sessions: dict[str, Session] = {}
        self.by_request: dict[str, str] = {}
        self.starts = 0
        self.most_at_once = 0
        self.groups: list[controller_pb2.Group] = []
        self.left_out: list[int] = []
        self.stops: list[str] = []
        self.changed = asyncio.Condition()
        self.go_on = asyncio.Event()
        self.period_s = 0.0
        self.raw_bytes = RAW_BYTES
        self.fail_with: tuple[str, str, str] | None = None
        self.ends_after_plan = 0
        self.plans = 0
        self.held_plan = 0
        self.plan_on = asyncio.Event()

    async def GetNode(self, request: controller_pb2.GetNodeRequest, context: Any) -> controller_pb2.GetNodeResponse:
        self.plans += 1
        if self.plans == self.held_plan:
            await self.plan_on.wait()
        node = controller_pb2.Node(name=f"nodes/{self.node}", zone=self.zone, trace_budget_bytes=1 << 30)
        for pid, name in self.processes.items():
            node.processes.add(pid=pid, name=name, backend=self.backend)
        for pid, name in self.others.items():
            if pid in request.pids or name == request.process_name:
                node.other_processes.add(pid=pid, name=name)
        if group := request.cgroup or request.container_id or request.pod:
            node.group.CopyFrom(controller_pb2.GroupOnNode(pids=self.processes, found=group))
        self.processes.pop(self.ends_after_plan, None)
        return controller_pb2.GetNodeResponse(node=node)

    async def StartSession(
        self, request: controller_pb2.StartSessionRequest, context: Any
    ) -> controller_pb2.StartSessionResponse:
        known = self.by_request.get(request.request_id)
        if known is None:
            pids = [pid for pid in request.pids if pid in self.processes] if request.found else []
            pids = pids or list(request.pids)
            for pid in pids:
                if pid not in self.processes:
                    raise NotFound(f"no process {pid}", reason="NO_SUCH_PROCESS", metadata={"pid": str(pid)})
            self.starts += 1
            self.groups.append(request.group)
            self.left_out.append(request.left_out)
            known = f"nodes/{self.node}/sessions/{secrets.token_hex(4)}"
            self.by_request[request.request_id] = known
            session = Session(
                name=known,
                state=Session.STATE_RECORDING,
                pids=pids,
                period_ms=request.period_ms,
                purpose=request.purpose,
                backend=self.backend,
                target_name=self.processes[pids[0]],
            )
            session.start_time.GetCurrentTime()
            self.sessions[known] = session
            recording = sum(one.state == Session.STATE_RECORDING for one in self.sessions.values())
            self.most_at_once = max(self.most_at_once, recording)
            self._task = asyncio.create_task(self._run(session))
        return controller_pb2.StartSessionResponse(session=self.sessions[known])

    async def StopSession(
        self, request: controller_pb2.StopSessionRequest, context: Any
    ) -> controller_pb2.StopSessionResponse:
        self.stops.append(request.name)
        self.go_on.set()
        return controller_pb2.StopSessionResponse(session=self.sessions[request.name])

    async def GetSession(
        self, request: controller_pb2.GetSessionRequest, context: Any
    ) -> controller_pb2.GetSessionResponse:
        return controller_pb2.GetSessionResponse(session=self.sessions[request.name])

    async def WatchSession(
        self, request: controller_pb2.WatchSessionRequest, context: Any
    ) -> AsyncIterator[controller_pb2.WatchSessionResponse]:
        while True:
            session = self.sessions[request.name]
            yield controller_pb2.WatchSessionResponse(session=session)
            if session.state in (Session.STATE_STORED, Session.STATE_FAILED):
                return
            async with self.changed:
                await self.changed.wait()

    async def _run(self, session: Session) -> None:
        await self.go_on.wait()
        await asyncio.sleep(self.period_s)
        session.end_time.GetCurrentTime()
        session.raw_bytes = self.raw_bytes
        await self._become(session, Session.STATE_STORING)
        session.stored_bytes = 1 << 20
        if self.fail_with is not None:
            session.error_reason, session.error_message, session.error_help = self.fail_with
        await self._become(session, Session.STATE_FAILED if self.fail_with else Session.STATE_STORED)

    async def _become(self, session: Session, state: Session.State.ValueType) -> None:
        session.state = state
        async with self.changed:
            self.changed.notify_all()


class RecordedByOthers(Controller):
    """A node on which another request's session records the process until `free` is set."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.free = asyncio.Event()
        self.go_on.set()

    async def StartSession(
        self, request: controller_pb2.StartSessionRequest, context: Any
    ) -> controller_pb2.StartSessionResponse:
        if not self.free.is_set():
            raise FailedPrecondition(
                f"process {request.pids[0]} is already being traced by nodes/{self.node}/sessions/other",
                reason="ALREADY_TRACED",
                metadata={"session": f"nodes/{self.node}/sessions/other"},
            )
        return await super().StartSession(request, context)


@asynccontextmanager
async def controller_serving(config: MeshConfig, controller: Controller) -> AsyncIterator[ServerContext]:
    async def setup(context: ServerContext) -> None:
        descriptor = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
        add = controller_pb2_grpc.add_ControllerServiceServicer_to_server
        context.add(add, controller, descriptor, {method.name: INTERNAL for method in descriptor.methods})

    async with serving("controller", config, setup, controller.node) as context:
        yield context
