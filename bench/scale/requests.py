"""Requests to coverage, followed as far as a bench wants, and what became of their sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from enum import IntEnum
from typing import Any

from permille.api.coverage.v1 import coverage_pb2 as pb
from permille.api.coverage.v1 import coverage_pb2_grpc as rpc
from permille.api.operation.v1.operation_pb2 import (
    CancelOperationRequest,
    GetOperationRequest,
    Operation,
    WaitOperationRequest,
)
from permille.controller.domain.session import Session, from_json
from permille.mesh.operation_names import operation_id
from permille.mesh.operations import OperationKeys
from scale.cluster import Cluster

_WAIT_MS = 20_000
_CALL_S = 120
_LOOK_S = 1.0


class Stage(IntEnum):
    """How far a coverage operation is, by its own words."""

    PLANNING = 0
    WAITING = 1
    RECORDING = 2
    STORING = 3
    DECODING = 4


class Requests:
    """Of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked_ns: dict[str, int] = {}

    async def start(self, process: str, node: str = "", *, period_ms: int) -> Operation:
        """Begins to record the processes of this name, as an anomaly: all there are."""
        coverage = pb.CoverageRequest(
            target=pb.Target(node=node, process_name=process), purpose=pb.PURPOSE_ANOMALY, period_ms=period_ms
        )
        asked = time.time_ns()
        request = pb.StartCoverageRequest(coverage=coverage)
        answer: pb.StartCoverageResponse = await (await self._stub()).StartCoverage(request, timeout=_CALL_S)
        self._asked_ns[answer.operation.name] = asked
        return answer.operation

    async def timed(self, process: str, node: str, period_ms: int) -> str:
        """The name of a request that was ended as soon as it recorded."""
        operation = await self.start(process, node, period_ms=period_ms)
        await self.until(operation, Stage.RECORDING)
        await self.cancel(operation)
        await self.ended(operation)
        return str(operation.name)

    async def until(self, operation: Operation, stage: Stage) -> None:
        """Returns when it has come to this stage. Raises when it fails before."""
        stub = await self._stub()
        while not operation.done and Stage[operation.progress.stage] < stage:
            wait = WaitOperationRequest(name=operation.name, timeout_ms=_WAIT_MS, newer_than=operation.update_time)
            operation = (await stub.WaitOperation(wait, timeout=_CALL_S)).operation
        if operation.HasField("error"):
            raise RuntimeError(operation.error.message)

    async def until_decoded(self, operation: Operation, most: int) -> int:
        """How many sessions are decoded when all are, or `most`."""
        keys = OperationKeys("decoder").records
        before = {kv.key for kv in await self._cluster.etcd.prefix(keys) if Operation.FromString(kv.value).done}
        while True:
            asked = GetOperationRequest(name=operation.name)
            done = (await (await self._stub()).GetOperation(asked, timeout=_CALL_S)).operation.done
            found = await self._cluster.etcd.prefix(keys)
            decoded = sum(kv.key not in before and Operation.FromString(kv.value).done for kv in found)
            if done or decoded >= most:
                return decoded
            await asyncio.sleep(_LOOK_S)

    async def cancel(self, operation: Operation) -> None:
        """Asks for its end."""
        await (await self._stub()).CancelOperation(CancelOperationRequest(name=operation.name), timeout=_CALL_S)

    async def ended(self, operation: Operation) -> Operation:
        """As it ended."""
        stub = await self._stub()
        while not operation.done:
            wait = WaitOperationRequest(name=operation.name, timeout_ms=_WAIT_MS)
            operation = (await stub.WaitOperation(wait, timeout=_CALL_S)).operation
        return operation

    async def end(self, operation: Operation) -> None:
        """Ends it, and returns when nothing is being decoded any more."""
        await self.cancel(operation)
        await self.ended(operation)
        await self.decoded()

    async def decoded(self) -> None:
        """Returns when nothing is being decoded any more."""
        async with aclosing(self._cluster.etcd.observe_prefix(OperationKeys("decoder").pending)) as states:
            async for pending in states:
                if not pending:
                    return

    async def latencies_ms(self, names: Sequence[str]) -> list[float]:
        """From when each of these requests was made to when each of its sessions recorded."""
        asked = {operation_id(name): self._asked_ns[name] for name in names}
        found = [(session, asked.get(_operation_of(session))) for session in await self._sessions()]
        return [(session.start_ns - asked_ns) / 1e6 for session, asked_ns in found if asked_ns is not None]

    async def sessions(self, operation: Operation) -> list[Session]:
        """Those that it has begun, as they are now; without those whose controllers are gone."""
        mine = operation_id(operation.name)
        return [one for one in await self._sessions() if _operation_of(one) == mine]

    async def _sessions(self) -> list[Session]:
        found = await self._cluster.etcd.prefix("/permille/v1/nodes/")
        return [from_json(kv.value) for kv in found if "/sessions/" in kv.key]

    async def _stub(self) -> Any:
        return rpc.CoverageServiceStub(await self._cluster.channels.to("coverage"))


def _operation_of(session: Session) -> str:
    """A session's request id is its operation's with a number after it."""
    return session.request_id.rpartition("-")[0]
