"""CoverageService on the wire."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.quota import Room
from permille.coverage.service.callers import Callers, reservation
from permille.coverage.service.coverage_reader import CoverageReader
from permille.coverage.service.planner import Planner
from permille.coverage.service.stability_store import StabilityStore
from permille.mesh.auth import OPERATE, VIEW, Access, Caller, require_visible
from permille.mesh.errors import PermilleError
from permille.mesh.operation_runner import OperationRunner
from permille.mesh.operation_service import OperationMethods
from permille.mesh.operations import OperationStore, Reservation

_MOST_EXPLAINED = 16

ACCESS: dict[str, Access] = {
    "PlanCoverage": VIEW,
    "StartCoverage": OPERATE,
    "GetCoverage": VIEW,
    "DiffCoverage": VIEW,
    "JudgeRound": VIEW,
    "GetOperation": VIEW,
    "ListOperations": VIEW,
    "WaitOperation": VIEW,
    "CancelOperation": OPERATE,
}


class CoverageService(OperationMethods, coverage_pb2_grpc.CoverageServiceServicer):
    """Plans and starts; what a start begins is worked on by `CoverageWork`."""

    def __init__(
        self,
        operations: OperationStore,
        *,
        callers: Callers,
        planner: Planner,
        runner: OperationRunner[coverage_pb2.StartCoverageRequest],
        reader: CoverageReader,
        stability: StabilityStore,
    ) -> None:
        super().__init__(operations)
        self._callers = callers
        self._planner = planner
        self._runner = runner
        self._reader = reader
        self._stability = stability

    async def PlanCoverage(  # noqa: N802
        self, request: coverage_pb2.PlanCoverageRequest, context: Any
    ) -> coverage_pb2.PlanCoverageResponse:
        """What StartCoverage would do, at which cost."""
        caller = self._callers.counted(context)
        found = await self._planner.survey(request.coverage)
        planned, _ = self._planner.plan(found, await self._callers.room(caller, found.wish))
        if request.outlook:
            await self._planner.add_outlook(planned, request.coverage.rounds.limit)
        return coverage_pb2.PlanCoverageResponse(plan=planned)

    async def StartCoverage(  # noqa: N802
        self, request: coverage_pb2.StartCoverageRequest, context: Any
    ) -> coverage_pb2.StartCoverageResponse:
        """Plans, so that a wish that cannot be fulfilled fails at once, and begins.

        A repeated request_id finds its operation even when the target is long gone.
        """
        caller = self._callers.counted(context)
        operation = await self._operations.find(request, request.request_id)
        if operation is None:
            operation = await self._begun(request, caller)
        require_visible(caller, operation.caller, operation.name)
        return coverage_pb2.StartCoverageResponse(operation=operation)

    async def GetCoverage(  # noqa: N802
        self, request: coverage_pb2.GetCoverageRequest, context: Any
    ) -> coverage_pb2.GetCoverageResponse:
        """What has been seen and what is estimated to be missing."""
        return await self._reader.coverage(request, self._callers.counted(context))

    async def DiffCoverage(  # noqa: N802
        self, request: coverage_pb2.DiffCoverageRequest, context: Any
    ) -> coverage_pb2.DiffCoverageResponse:
        """What two sets of sessions did differently."""
        return await self._reader.diff(request, self._callers.counted(context))

    async def JudgeRound(  # noqa: N802
        self, request: coverage_pb2.JudgeRoundRequest, context: Any
    ) -> coverage_pb2.JudgeRoundResponse:
        """Whether another round pays."""
        return await self._reader.judge_round(request, self._callers.counted(context))

    async def ListOperations(  # noqa: N802
        self, request: operation_pb2.ListOperationsRequest, context: Any
    ) -> operation_pb2.ListOperationsResponse:
        """The newest operations first."""
        self._callers.counted(context)
        return await super().ListOperations(request, context)

    async def _begun(self, request: coverage_pb2.StartCoverageRequest, caller: Caller) -> operation_pb2.Operation:
        planned = coverage_pb2.Plan()

        async def begin(room: Room, revision: int) -> operation_pb2.Operation:
            nonlocal planned
            planned, made = self._planner.plan(found, room)
            state = coverage_pb2.CoverageState(plan=_briefly(planned))
            return await self._runner.start(
                request,
                request.request_id,
                operation_pb2.Progress(stage="PLANNING"),
                checkpoint=state.SerializeToString(deterministic=True),
                caller=caller.name,
                reservation=Reservation(reservation(caller, found.wish.namespace, made, room), revision),
            )

        try:
            found = await self._planner.survey(request.coverage)
            operation = await self._callers.start(caller, found.wish, begin)
        except PermilleError:
            # The same request at the same time was quicker: what it records cannot be planned for any more.
            known = await self._operations.find(request, request.request_id)
            if known is None:
                raise
            return known
        if request.coverage.purpose == coverage_pb2.PURPOSE_ANOMALY:
            # The operation may be one that was begun before, and then counts no more.
            await self._remember_trouble(planned, request.coverage.cause or operation.name)
        return operation

    async def _remember_trouble(self, plan: coverage_pb2.Plan, cause: str) -> None:
        for name in {choice.process_name for choice in plan.choices}:
            # It only makes later periods better.
            with suppress(PermilleError):
                await self._stability.trouble(name, cause)


def _briefly(plan: coverage_pb2.Plan) -> coverage_pb2.Plan:
    """Of very many sessions without the explanations: the state is written again with each that begins."""
    brief = coverage_pb2.Plan()
    brief.CopyFrom(plan)
    if len(plan.choices) > _MOST_EXPLAINED:
        brief.ClearField("choices")
        for session in (*brief.nodes, *brief.later):
            session.ClearField("period_terms")
    return brief
