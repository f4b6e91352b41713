"""A node that records nothing: the controller's own wire, registry, leases and streams; the allocator's real plan.

A small recorded session is stored anew under each session's name, so that the decoder has something to decode.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from permille.api.allocator.v1 import allocator_pb2, allocator_pb2_grpc
from permille.api.controller.v1 import controller_pb2 as pb
from permille.api.controller.v1 import controller_pb2_grpc as rpc
from permille.controller.domain.session import Session, State, StopReason
from permille.controller.service.session_message import from_message, to_message
from permille.controller.service.session_registry import SessionRegistry
from permille.mesh import discovery
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import connect
from permille.mesh.interceptor import ErrorInterceptor
from permille.mesh.lease import Lease
from permille.mesh.store import ObjectStore

EVERYWHERE = "web"
BUDGET_BYTES = 64 << 20
THREADS = 4


class RecordedSession:
    """A session's objects, to be stored again under other names."""

    def __init__(self, manifest: dict[str, Any], segments: list[bytes]) -> None:
        self._manifest = manifest
        self._segments = segments
        self.raw_bytes = sum(segment["size_bytes"] for segment in manifest["segments"])

    @classmethod
    async def load(cls, store: ObjectStore, session_id: str) -> RecordedSession:
        manifest = json.loads(await store.get(f"raw/{session_id}/manifest.json"))
        return cls(manifest, [await store.get(segment["key"]) for segment in manifest["segments"]])

    async def store_as(self, store: ObjectStore, session: Session) -> None:
        segments = []
        for segment, data in zip(self._manifest["segments"], self._segments, strict=True):
            key = f"raw/{session.id}/{segment['key'].rpartition('/')[2]}"
            await store.put_stream(key, data)
            segments.append(segment | {"key": key})
        named = {"session": session.name, "session_id": session.id, "node": session.node, "segments": segments}
        await store.put_stream(f"raw/{session.id}/manifest.json", json.dumps(self._manifest | named).encode())


class NodeAgent(rpc.ControllerServiceServicer):
    """One simulated node: its own lease, etcd connection, channels and port."""

    def __init__(self, node: str, config: MeshConfig, store: ObjectStore, recorded: RecordedSession) -> None:
        self._node = node
        self._store = store
        self._recorded = recorded
        self._etcd = connect(config)
        self._lease = Lease(self._etcd, config.lease_ttl_s)
        self._registry = SessionRegistry(self._etcd, self._lease, node)
        self._channels = Channels(config, self._etcd)
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor("controller")])
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._lease.start()
        rpc.add_ControllerServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        await self._registry.start(json.dumps({"node": self._node, "cores": 2}).encode())
        await discovery.register(self._lease, "controller", self._node, f"127.0.0.1:{port}", {"metrics": "off"})

    async def GetNode(self, request: pb.GetNodeRequest, context: Any) -> pb.GetNodeResponse:  # noqa: N802
        number = int(self._node.rpartition("-")[2])
        processes = [
            pb.Process(pid=1000, name=EVERYWHERE, command_line=[EVERYWHERE], threads=THREADS),
            pb.Process(pid=1001, name=f"job-{number}", command_line=["job"], threads=THREADS),
        ]
        return pb.GetNodeResponse(
            node=pb.Node(
                name=f"nodes/{self._node}",
                cores=2,
                memory_bytes=4 << 30,
                trace_budget_bytes=BUDGET_BYTES,
                processes=processes,
            )
        )

    async def PlanSession(self, request: pb.PlanSessionRequest, context: Any) -> pb.PlanSessionResponse:  # noqa: N802
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there are no processes here to look at")
        raise AssertionError

    async def StartSession(self, request: pb.StartSessionRequest, context: Any) -> pb.StartSessionResponse:  # noqa: N802
        wish = from_message(request)

        def make() -> Session:
            return Session(
                node=self._node,
                id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}",
                request_id=wish.request_id,
                pids=tuple(wish.pids),
                purpose=wish.purpose,
                period_ms=wish.period_ms,
                budget_bytes=wish.budget_bytes or BUDGET_BYTES,
                options=wish.options,
                target_name=EVERYWHERE,
                create_ns=time.time_ns(),
            )

        session, created = await self._registry.create(wish.request_id, make)
        if created:
            task = asyncio.create_task(self._run(session))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return pb.StartSessionResponse(session=to_message(session))

    async def StopSession(self, request: pb.StopSessionRequest, context: Any) -> pb.StopSessionResponse:  # noqa: N802
        return pb.StopSessionResponse(session=to_message(await self._registry.get(request.name)))

    async def GetSession(self, request: pb.GetSessionRequest, context: Any) -> pb.GetSessionResponse:  # noqa: N802
        return pb.GetSessionResponse(session=to_message(await self._registry.get(request.name)))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Any) -> pb.ListSessionsResponse:  # noqa: N802
        page, token = await self._registry.page(request.parent, request.page_size, request.page_token)
        return pb.ListSessionsResponse(sessions=[to_message(session) for session in page], next_page_token=token)

    async def WatchSession(  # noqa: N802
        self, request: pb.WatchSessionRequest, context: Any
    ) -> AsyncIterator[pb.WatchSessionResponse]:
        async for session in self._registry.watch(request.name):
            yield pb.WatchSessionResponse(session=to_message(session))

    async def _run(self, session: Session) -> None:
        expected = await self._plan(session)
        recording = session.advanced(State.RECORDING, start_ns=time.time_ns(), expected_bytes=expected)
        self._registry.publish(recording)
        await asyncio.sleep(session.period_ms / 1000)
        raw = self._recorded.raw_bytes
        storing = recording.advanced(
            State.STORING, end_ns=time.time_ns(), stop_reason=StopReason.PERIOD, raw_bytes=raw, segments=1
        )
        self._registry.publish(storing)
        await self._recorded.store_as(self._store, storing)
        self._registry.publish(storing.advanced(State.STORED, stored_bytes=raw))

    async def _plan(self, session: Session) -> int:
        stub = allocator_pb2_grpc.AllocatorServiceStub(await self._channels.to("allocator"))
        request = allocator_pb2.PlanBuffersRequest(
            kind=allocator_pb2.UNIT_KIND_THREAD,
            usages=[allocator_pb2.Usage(unit=1000 + thread, share=0.1) for thread in range(THREADS)],
            budget_bytes=session.budget_bytes,
            period_ms=session.period_ms,
        )
        return int((await stub.PlanBuffers(request)).expected_bytes)
