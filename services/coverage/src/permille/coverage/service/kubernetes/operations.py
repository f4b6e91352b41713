"""The coverage service as the operator uses it: through its API, and every start exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

import grpc
from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.coverage.service.patience import Patience
from permille.mesh.channels import Channels
from permille.mesh.errors import Code, Unavailable
from permille.mesh.interceptor import from_rpc_error

Operation = operation_pb2.Operation
_SHORT_S = 20.0
# It is only good to know.
_PLAN_S = 10.0
# Many sessions' functions are read.
_TABLES_S = 120.0
_WAIT_MS = 20_000
_PAGE = 1000
# How far the clocks of the API server and of coverage may be apart.
_SKEW = timedelta(minutes=10)
_T = TypeVar("_T")


class Operations:
    """Coverage operations. Every call is repeated while no coverage service answers, for `patience_s`."""

    def __init__(self, channels: Channels, *, patience_s: float) -> None:
        self._channels = channels
        self._patience_s = patience_s
        self._starting: dict[asyncio.Task[Operation], str] = {}

    async def start(self, request_id: str, wish: coverage_pb2.CoverageRequest) -> Operation:
        """The operation of this request_id, begun now if there is none.

        A start goes on when its caller is cancelled, so that `settled` knows whether there is something to stop.
        """
        request = coverage_pb2.StartCoverageRequest(request_id=request_id, coverage=wish)

        async def start() -> Operation:
            return (await (await self._stub()).StartCoverage(request, timeout=_SHORT_S)).operation

        task = asyncio.create_task(self._answered(start))
        self._starting[task] = request_id
        task.add_done_callback(self._starting.pop)
        return await asyncio.shield(task)

    async def plan(self, wish: coverage_pb2.CoverageRequest) -> coverage_pb2.Plan:
        """What a start would do, asked once. Raises `PermilleError`."""
        request = coverage_pb2.PlanCoverageRequest(coverage=wish)
        try:
            return (await (await self._stub()).PlanCoverage(request, timeout=_PLAN_S)).plan
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def judge(self, request: coverage_pb2.JudgeRoundRequest) -> coverage_pb2.JudgeRoundResponse:
        """Whether another round pays. Raises `PermilleError`: `Unavailable` also of a coverage that cannot tell yet."""

        async def judge() -> coverage_pb2.JudgeRoundResponse:
            try:
                return await (await self._stub()).JudgeRound(request, timeout=_TABLES_S)
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
                if error.code is Code.UNIMPLEMENTED:
                    # As in an upgrade, which may bring the operator first.
                    raise Unavailable(
                        "coverage is of a former version", reason="COVERAGE_TOO_OLD", help="upgrade coverage too"
                    ) from None
                raise error from None

        return await self._answered(judge)

    async def settled(self, prefix: str) -> None:
        """Returns when no start of a request_id with this prefix is under way."""
        under_way = [task for task, request_id in self._starting.items() if request_id.startswith(prefix)]
        await asyncio.gather(*under_way, return_exceptions=True)

    async def changed(self, operation: Operation) -> Operation:
        """The operation when it is newer than this, or the same after a while."""
        request = operation_pb2.WaitOperationRequest(
            name=operation.name, timeout_ms=_WAIT_MS, newer_than=operation.update_time
        )

        async def wait() -> Operation:
            return (await (await self._stub()).WaitOperation(request, timeout=_WAIT_MS / 1000 + _SHORT_S)).operation

        return await self._answered(wait)

    async def stop(self, prefix: str, since: datetime) -> list[Operation]:
        """Cancels what was started with such a request_id since then; returns when all of it is over."""
        await self.settled(prefix)
        return await asyncio.gather(*map(self._stop, await self._find(prefix, since)))

    async def _stop(self, operation: Operation) -> Operation:
        async def cancel() -> Operation:
            request = operation_pb2.CancelOperationRequest(name=operation.name)
            return (await (await self._stub()).CancelOperation(request, timeout=_SHORT_S)).operation

        if not operation.done:
            operation = await self._answered(cancel)
        while not operation.done:
            operation = await self.changed(operation)
        return operation

    async def _find(self, prefix: str, since: datetime) -> list[Operation]:
        found: list[Operation] = []
        request = operation_pb2.ListOperationsRequest(page_size=_PAGE)

        async def page() -> operation_pb2.ListOperationsResponse:
            return await (await self._stub()).ListOperations(request, timeout=_SHORT_S)

        while True:
            answer = await self._answered(page)
            found += [operation for operation in answer.operations if operation.request_id.startswith(prefix)]
            oldest = answer.operations[-1].create_time.ToDatetime(since.tzinfo) if answer.operations else since
            if not answer.next_page_token or oldest < since - _SKEW:
                return found
            request.page_token = answer.next_page_token

    async def _answered(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        return await Patience(self._patience_s).until_answered(attempt)

    async def _stub(self) -> coverage_pb2_grpc.CoverageServiceAsyncStub:
        return coverage_pb2_grpc.CoverageServiceStub(await self._channels.to("coverage"))
