"""The operation methods that every service with operations has, on the wire."""

from __future__ import annotations

from typing import Any

from permille.api.operation.v1 import operation_pb2
from permille.mesh.auth import identity_of, require_own, require_visible, sees_all
from permille.mesh.errors import InvalidArgument
from permille.mesh.operations import OperationStore

# So much before its deadline a waiting call answers, so that the answer arrives.
_MARGIN_S = 0.5
_LONGEST_WAIT_S = 3600.0


class OperationMethods:
    """Get, list, wait for and cancel operations; a servicer inherits it before its generated base class."""

    def __init__(self, operations: OperationStore) -> None:
        self._operations = operations

    async def GetOperation(  # noqa: N802
        self, request: operation_pb2.GetOperationRequest, context: Any
    ) -> operation_pb2.GetOperationResponse:
        """One operation as it is now; an external system sees its own ones alone."""
        operation = await self._operations.get(request.name)
        require_visible(identity_of(context), operation.caller, request.name)
        return operation_pb2.GetOperationResponse(operation=operation)

    async def ListOperations(  # noqa: N802
        self, request: operation_pb2.ListOperationsRequest, context: Any
    ) -> operation_pb2.ListOperationsResponse:
        """The newest operations first; of an external system its own ones."""
        caller = identity_of(context)
        owner = None if sees_all(caller) else caller.name
        page, token = await self._operations.list(request.page_size, request.page_token, caller=owner)
        return operation_pb2.ListOperationsResponse(operations=page, next_page_token=token)

    async def WaitOperation(  # noqa: N802
        self, request: operation_pb2.WaitOperationRequest, context: Any
    ) -> operation_pb2.WaitOperationResponse:
        """The operation when it is done, was changed after `newer_than`, or the time is over."""
        caller = identity_of(context)
        if not sees_all(caller):
            require_visible(caller, (await self._operations.get(request.name)).caller, request.name)
        newer_than_ns = _newer_than_ns(request)
        timeout_s = _wait_s(request.timeout_ms, context.time_remaining())
        operation = await self._operations.wait(request.name, timeout_s, newer_than_ns)
        return operation_pb2.WaitOperationResponse(operation=operation)

    async def CancelOperation(  # noqa: N802
        self, request: operation_pb2.CancelOperationRequest, context: Any
    ) -> operation_pb2.CancelOperationResponse:
        """Asks the work to end; the operation is done when it has. An external system ends its own ones alone."""
        owner = (await self._operations.get(request.name)).caller
        require_own(identity_of(context), owner, request.name)
        return operation_pb2.CancelOperationResponse(operation=await self._operations.cancel(request.name))


def _newer_than_ns(request: operation_pb2.WaitOperationRequest) -> int:
    if not request.HasField("newer_than"):
        return 0
    try:
        return request.newer_than.ToNanoseconds()
    except ValueError as error:
        raise InvalidArgument(
            f"newer_than is no time: {error}",
            reason="NEWER_THAN",
            help="give the update_time of the operation as it was answered, or leave it out",
        ) from None


def _wait_s(timeout_ms: int, remaining_s: float | None) -> float:
    allowed_s = _LONGEST_WAIT_S if remaining_s is None else max(remaining_s - _MARGIN_S, remaining_s / 2, 0.0)
    return min(timeout_ms / 1000, allowed_s) if timeout_ms > 0 else allowed_s
