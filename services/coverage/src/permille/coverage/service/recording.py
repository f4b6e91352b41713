"""One session of a plan: begun, watched until it is stored, stopped when nobody wants it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from permille.api.controller.v1 import controller_pb2, controller_pb2_grpc
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.service.patience import Patience
from permille.coverage.service.wire import node_id, purpose_word
from permille.mesh.channels import Channels
from permille.mesh.errors import Code, FailedPrecondition, NotFound, PermilleError

Session = controller_pb2.Session
_FINAL = (Session.STATE_STORED, Session.STATE_FAILED)
_SHORT_S = 10.0
# A call's deadline begins when it is made: of a thousand made at once the last would be answered after it.
_AT_ONCE = 64
# A watch is renewed at least this often, so that a silent connection is noticed.
_WATCH_S = 300.0


class Recordings:
    """Sessions on the controllers of the mesh. Every call is repeated while its controller is away."""

    def __init__(self, channels: Channels, *, patience_s: float) -> None:
        self._channels = channels
        self._patience_s = patience_s
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def begin(
        self, plan: coverage_pb2.NodePlan, coverage: coverage_pb2.CoverageRequest, request_id: str
    ) -> Session:
        """Starts a session, or finds the one that this request_id started.

        Raises the controller's error; `NotFound` (TARGET_ENDED) when the process ended since the plan was made, or all
        that a name or a group had.
        """
        request = controller_pb2.StartSessionRequest(
            request_id=request_id,
            pids=plan.pids,
            purpose=purpose_word(coverage),
            period_ms=plan.period_ms,
            budget_bytes=plan.budget_bytes,
            options=coverage.options if coverage.HasField("options") else None,
            backend=coverage.backend,
            group=_group(coverage.target),
            retention_s=coverage.retention_s,
            left_out=plan.left_out,
            found=not coverage.target.pids,
        )

        async def start() -> controller_pb2.StartSessionResponse:
            async with self._slots:
                return await (await self._stub(plan.node)).StartSession(request, timeout=_SHORT_S)

        try:
            return (await Patience(self._patience_s).until_answered(start)).session
        except NotFound as error:
            raise _ended(error) from None

    async def follow(self, name: str, changed: Callable[[Session], None]) -> Session:
        """Tells every change of a session and returns it when it is stored. Raises its error when it failed."""
        patience = Patience(self._patience_s)

        async def watch() -> Session:
            async with self._slots:
                stub = await self._stub(_node_of(name))
                session = (await stub.GetSession(controller_pb2.GetSessionRequest(name=name), timeout=_SHORT_S)).session
            patience.rewarded()
            changed(session)
            if session.state in _FINAL:
                return session
            request = controller_pb2.WatchSessionRequest(name=name, changes_only=True)
            async for update in stub.WatchSession(request, timeout=_WATCH_S):
                patience.rewarded()
                changed(update.session)
                session = update.session
            return session

        session = await patience.until_answered(watch)
        while session.state not in _FINAL:
            # The stream ended early: its deadline, or its server's drain.
            session = await patience.until_answered(watch)
        if session.state == Session.STATE_FAILED:
            raise _failed(session)
        return session

    async def stop(self, name: str) -> None:
        """Ends a recording now; what was recorded is stored. One that is over is left alone."""

        async def stop() -> object:
            async with self._slots:
                stub = await self._stub(_node_of(name))
                return await stub.StopSession(controller_pb2.StopSessionRequest(name=name), timeout=_SHORT_S)

        try:
            await Patience(self._patience_s).until_answered(stop)
        except PermilleError as error:
            if error.code not in (Code.FAILED_PRECONDITION, Code.NOT_FOUND):
                raise

    async def _stub(self, node: str) -> controller_pb2_grpc.ControllerServiceAsyncStub:
        channel = await self._channels.to("controller", node_id(node))
        return controller_pb2_grpc.ControllerServiceStub(channel)


def _group(target: coverage_pb2.Target) -> controller_pb2.Group:
    return controller_pb2.Group(
        cgroup=target.cgroup, container_id=target.container_id, pod=target.pod, selector=target.selector
    )


def _node_of(session: str) -> str:
    return session.partition("/sessions/")[0]


def _ended(error: NotFound) -> NotFound:
    return NotFound(
        f"the process ended before its recording began: {error.message}",
        reason="TARGET_ENDED",
        help="start it again with `permille run -- CMD`, or choose another process",
        metadata=error.metadata,
    )


def _failed(session: Session) -> PermilleError:
    return FailedPrecondition(
        f"{session.name} failed: {session.error_message}",
        reason=session.error_reason or "SESSION_FAILED",
        help=session.error_help,
        metadata={"session": session.name},
    )
