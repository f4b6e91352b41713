"""Which sessions a caller means."""

from __future__ import annotations

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.service.session_profiles import SessionProfiles
from permille.mesh.auth import Caller, require_visible
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound
from permille.mesh.operations import OperationStore, operation_error

MOST_SESSIONS = 100


class SessionSets:
    """By name, by the operation that recorded them, or the newest of a program."""

    def __init__(self, operations: OperationStore, profiles: SessionProfiles, *, history: int) -> None:
        self._operations = operations
        self._profiles = profiles
        self._history = history

    async def ids(self, wanted: coverage_pb2.SessionSet, field: str, caller: Caller) -> tuple[list[str], int]:
        """Session ids, each once, and how many older ones are left out.

        Raises `InvalidArgument` unless exactly one of sessions, operation and target is given, `NotFound` for a program
        without sessions, `PermissionDenied` for an operation that the caller may not see, `FailedPrecondition` for one
        that is not done, or has failed.
        """
        if sum(map(bool, (wanted.sessions, wanted.operation, wanted.target))) != 1:
            raise InvalidArgument(
                f"{field} must name sessions, or an operation, or a target",
                reason="SESSION_SET",
                help="give exactly one of sessions, operation and target",
                metadata={"field": field},
            )
        if wanted.sessions:
            return self._named(wanted, field), 0
        if wanted.operation:
            return await self._of_operation(wanted.operation, caller), 0
        found, older = await self._profiles.of_target(wanted.target, self._history)
        if not found:
            raise NotFound(
                f"no decoded session of a program named {wanted.target}",
                reason="NO_SESSIONS",
                help=f"record one: permille trace --name {wanted.target}; `permille sessions` lists those there are",
                metadata={"target": wanted.target},
            )
        return found, older

    def _named(self, wanted: coverage_pb2.SessionSet, field: str) -> list[str]:
        named = list(dict.fromkeys(name.rpartition("/")[2] for name in wanted.sessions))
        if len(named) > MOST_SESSIONS or not all(named):
            raise InvalidArgument(
                f"{field} has {len(named)} sessions, or an empty name",
                reason="SESSION_SET",
                help=f"name 1 to {MOST_SESSIONS} sessions",
                metadata={"field": field},
            )
        return named

    async def _of_operation(self, name: str, caller: Caller) -> list[str]:
        operation = await self._operations.get(name)
        require_visible(caller, operation.caller, name)
        error = operation_error(operation)
        if error is not None:
            # Not the error itself: this call need not be repeated because that one might be.
            raise FailedPrecondition(
                f"{name} failed, {error.reason}: {error.message}",
                reason="OPERATION_FAILED",
                help=error.help,
                metadata={"operation": name, "reason": error.reason},
            )
        if not operation.done:
            raise FailedPrecondition(
                f"{name} is not done",
                reason="OPERATION_NOT_DONE",
                help="wait for its end",
                metadata={"operation": name},
                retry_after_s=1.0,
            )
        result = coverage_pb2.CoverageResult()
        operation.response.Unpack(result)
        return [session.rpartition("/")[2] for session in result.sessions]
