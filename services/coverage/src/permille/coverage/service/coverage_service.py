"""CoverageService on the wire."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.coverage.service.coverage_reader import CoverageReader
from permille.coverage.service.planner import Planner
from permille.coverage.service.stability_store import StabilityStore
from permille.mesh.auth import OPERATE, VIEW, Access
from permille.mesh.errors import PermilleError
from permille.mesh.operation_runner import OperationRunner
from permille.mesh.operation_service import OperationMethods
from permille.mesh.operations import OperationStore

_MOST_EXPLAINED = 16

ACCESS: dict[str, Access] = {
    "PlanCoverage": VIEW,
    "StartCoverage": OPERATE,
    "GetCoverage": VIEW,
    "DiffCoverage": VIEW,
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
        planner: Planner,
        runner: OperationRunner[coverage_pb2.StartCoverageRequest],
        reader: CoverageReader,
        stability: StabilityStore,
    ) -> None:
        super().__init__(operations)
        self._planner = planner
        self._runner = runner
        self._reader = reader
        self._stability = stability

    async def PlanCoverage(  # noqa: N802
        self, request: coverage_pb2.PlanCoverageRequest, context: Any
    ) -> coverage_pb2.PlanCoverageResponse:
        """What StartCoverage would do, at which cost."""
        planned = self._planner.with_outlook if request.outlook else self._planner.plan
        return coverage_pb2.PlanCoverageResponse(plan=await planned(request.coverage))

    async def StartCoverage(  # noqa: N802
        self, request: coverage_pb2.StartCoverageRequest, context: Any
    ) -> coverage_pb2.StartCoverageResponse:
        """Plans, so that a wish that cannot be fulfilled fails at once, and begins.

        A repeated request_id finds its operation even when the target is long gone.
        """
        operation = await self._operations.find(request, request.request_id)
        if operation is None:
            operation = await self._begun(request)
        return coverage_pb2.StartCoverageResponse(operation=operation)

    async def GetCoverage(  # noqa: N802
        self, request: coverage_pb2.GetCoverageRequest, context: Any
    ) -> coverage_pb2.GetCoverageResponse:
        """What has been seen and what is estimated to be missing."""
        return await self._reader.coverage(request)

    async def DiffCoverage(  # noqa: N802
        self, request: coverage_pb2.DiffCoverageRequest, context: Any
    ) -> coverage_pb2.DiffCoverageResponse:
        """What two sets of sessions did differently."""
        return await self._reader.diff(request)

    async def _begun(self, request: coverage_pb2.StartCoverageRequest) -> operation_pb2.Operation:
        try:
            plan = await self._planner.plan(request.coverage)
        except PermilleError:
            # The same request at the same time was quicker: what it records cannot be planned for any more.
            operation = await self._operations.find(request, request.request_id)
            if operation is None:
                raise
            return operation
        state = coverage_pb2.CoverageState(plan=_briefly(plan))
        operation = await self._runner.start(
            request,
            request.request_id,
            operation_pb2.Progress(stage="PLANNING"),
            checkpoint=state.SerializeToString(deterministic=True),
        )
        if request.coverage.purpose == coverage_pb2.PURPOSE_ANOMALY:
            await self._remember_trouble(plan)
        return operation

    async def _remember_trouble(self, plan: coverage_pb2.Plan) -> None:
        for name in {choice.process_name for choice in plan.choices}:
            # It only makes later periods better.
            with suppress(PermilleError):
                await self._stability.trouble(name)


def _briefly(plan: coverage_pb2.Plan) -> coverage_pb2.Plan:
    """Of very many sessions without the explanations: the state is written again with each that begins."""
    brief = coverage_pb2.Plan()
    brief.CopyFrom(plan)
    if len(plan.choices) > _MOST_EXPLAINED:
        brief.ClearField("choices")
        for session in (*brief.nodes, *brief.later):
            session.ClearField("period_terms")
    return brief
