"""ControllerService: messages to sessions and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from permille.api.controller.v1 import controller_pb2 as pb
from permille.api.controller.v1 import controller_pb2_grpc as rpc
from permille.controller.service.container_runtime import ContainerRuntime
from permille.controller.service.group_message import group_on_node
from permille.controller.service.node_description import NodeDescription
from permille.controller.service.session_message import backend_name, from_message, listed_message, to_message
from permille.controller.service.sessions import Sessions
from permille.mesh.errors import NotFound


class ControllerService(rpc.ControllerServiceServicer):
    """Runs recordings on one node."""

    def __init__(self, node: str, sessions: Sessions, description: NodeDescription, runtime: ContainerRuntime) -> None:
        self._node = node
        self._runtime = runtime
        self._sessions = sessions
        self._description = description

    async def PlanSession(self, request: pb.PlanSessionRequest, context: Any) -> pb.PlanSessionResponse:  # noqa: N802
        return await self._sessions.plan(request)

    async def StartSession(self, request: pb.StartSessionRequest, context: Any) -> pb.StartSessionResponse:  # noqa: N802
        session = await self._sessions.start(from_message(request))
        return pb.StartSessionResponse(session=to_message(session))

    async def StopSession(self, request: pb.StopSessionRequest, context: Any) -> pb.StopSessionResponse:  # noqa: N802
        return pb.StopSessionResponse(session=to_message(await self._sessions.stop(request.name)))

    async def GetSession(self, request: pb.GetSessionRequest, context: Any) -> pb.GetSessionResponse:  # noqa: N802
        return pb.GetSessionResponse(session=to_message(await self._sessions.registry.get(request.name)))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Any) -> pb.ListSessionsResponse:  # noqa: N802
        page, token = await self._sessions.registry.page(request.parent, request.page_size, request.page_token)
        return pb.ListSessionsResponse(sessions=[listed_message(session) for session in page], next_page_token=token)

    async def WatchSession(  # noqa: N802
        self, request: pb.WatchSessionRequest, context: Any
    ) -> AsyncIterator[pb.WatchSessionResponse]:
        registry = self._sessions.registry
        if request.changes_only:
            async for session in registry.watch(request.name):
                yield pb.WatchSessionResponse(session=to_message(session))
            return
        async for session, progress in registry.watch_progress(request.name):
            yield pb.WatchSessionResponse(session=to_message(session, progress))

    async def GetNode(self, request: pb.GetNodeRequest, context: Any) -> pb.GetNodeResponse:  # noqa: N802
        if request.name not in ("", f"nodes/{self._node}"):
            raise NotFound(
                f"this is the controller of nodes/{self._node}, not of {request.name}",
                reason="OTHER_NODE",
                help="leave the name empty, or ask that node's controller",
                metadata={"node": self._node},
            )
        group = await group_on_node(request, self._runtime)
        pids = [*request.pids, *(group.pids if group else ())]
        node = await self._description.message(backend_name(request.backend), pids, request.process_name)
        if group:
            node.group.CopyFrom(group)
        return pb.GetNodeResponse(node=node)
