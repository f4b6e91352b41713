"""What is asked in which order, without any input or output: both clients hold these conversations.

A conversation yields calls, and gets their answers or errors; it yields pauses; it returns its result.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.client.errors import AWAY, DeadlineExceeded, PermilleError, error_of_operation
from permille.client.wishes import Measure, measure_value

Operation = operation_pb2.Operation
Tell = Callable[[operation_pb2.Progress], None]
_T = TypeVar("_T")

# One call waits so long for news of an operation, and its answer may take a little longer.
_NEWS_MS = 20_000
_LATE_S = 10.0
# Reading what many sessions did takes as long as there is to read.
_TABLES_S = 300.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


@dataclass(frozen=True)
class Call:
    """One call of CoverageService."""

    method: str
    request: Message
    timeout_s: float


@dataclass(frozen=True)
class Pause:
    """Nothing for a while."""

    seconds: float


Conversation = Generator[Call | Pause, Any, _T]


@dataclass(frozen=True)
class Manner:
    """`timeout_s`: of one call. `patience_s`: how long a call is repeated that may succeed later."""

    timeout_s: float = 30.0
    patience_s: float = 60.0
    clock: Callable[[], float] = time.monotonic

    def start(self, wish: coverage_pb2.CoverageRequest, request_id: str) -> Conversation[Operation]:
        """A repetition, also one after a lost answer, finds the operation that the first one began."""
        request = coverage_pb2.StartCoverageRequest(request_id=request_id or str(uuid.uuid4()), coverage=wish)
        answer: coverage_pb2.StartCoverageResponse = yield from self._answered("StartCoverage", request)
        return answer.operation

    def plan(self, wish: coverage_pb2.CoverageRequest, *, outlook: bool) -> Conversation[coverage_pb2.Plan]:
        request = coverage_pb2.PlanCoverageRequest(coverage=wish, outlook=outlook)
        answer: coverage_pb2.PlanCoverageResponse = yield from self._answered("PlanCoverage", request)
        return answer.plan

    def get(self, operation: Operation | str, patience_s: float | None = None) -> Conversation[Operation]:
        request = operation_pb2.GetOperationRequest(name=_name(operation))
        answer: operation_pb2.GetOperationResponse = yield from self._answered(
            "GetOperation", request, patience_s=patience_s
        )
        return answer.operation

    def cancel(self, operation: Operation | str) -> Conversation[Operation]:
        request = operation_pb2.CancelOperationRequest(name=_name(operation))
        answer: operation_pb2.CancelOperationResponse = yield from self._answered("CancelOperation", request)
        return answer.operation

    def page(self, size: int, token: str) -> Conversation[operation_pb2.ListOperationsResponse]:
        return self._answered("ListOperations", operation_pb2.ListOperationsRequest(page_size=size, page_token=token))

    def coverage(
        self, of: coverage_pb2.SessionSet, functions: int, edges: int, paths: int
    ) -> Conversation[coverage_pb2.GetCoverageResponse]:
        request = coverage_pb2.GetCoverageRequest(of=of, functions=functions, edges=edges, paths=paths)
        return self._answered("GetCoverage", request, timeout_s=self._tables_s)

    def diff(
        self, a: coverage_pb2.SessionSet, b: coverage_pb2.SessionSet, measure: Measure, limit: int, paths: int
    ) -> Conversation[coverage_pb2.DiffCoverageResponse]:
        request = coverage_pb2.DiffCoverageRequest(a=a, b=b, measure=measure_value(measure), limit=limit, paths=paths)
        return self._answered("DiffCoverage", request, timeout_s=self._tables_s)

    def wait(
        self, operation: Operation | str, tell: Tell | None, limit_s: float | None
    ) -> Conversation[coverage_pb2.CoverageResult]:
        """Follows the operation to its end. Raises its error, or `DeadlineExceeded` after `limit_s`; it goes on.

        Where the last call had no answer when `limit_s` is over, why it had none is the error.
        """
        begun_s = self.clock()
        asked = isinstance(operation, str)
        now = (yield from self.get(operation, limit_s)) if isinstance(operation, str) else operation
        while not now.done:
            if tell is not None:
                tell(now.progress)
            left_s = _NEWS_MS / 1000 if limit_s is None else max(0.0, begun_s + limit_s - self.clock())
            if asked and not left_s:
                raise _not_done(now, limit_s)
            asked = True
            wait_ms = min(_NEWS_MS, max(1, int(left_s * 1000)))
            request = operation_pb2.WaitOperationRequest(name=now.name, timeout_ms=wait_ms, newer_than=now.update_time)
            answer: operation_pb2.WaitOperationResponse = yield from self._answered(
                "WaitOperation",
                request,
                timeout_s=wait_ms / 1000 + _LATE_S,
                patience_s=None if limit_s is None else left_s,
            )
            now = answer.operation
        failed = error_of_operation(now)
        if failed is not None:
            raise failed
        result = coverage_pb2.CoverageResult()
        now.response.Unpack(result)
        return result

    @property
    def _tables_s(self) -> float:
        return max(self.timeout_s, _TABLES_S)

    def _answered(
        self, method: str, request: Message, *, timeout_s: float = 0.0, patience_s: float | None = None
    ) -> Conversation[Any]:
        """Repeats the call after the delay that the server names, or while nobody answers.

        For so long as this client has patience, and at most for `patience_s`. All calls can be repeated: a start has
        its request_id.
        """
        begun_s, pause_s = self.clock(), _FIRST_PAUSE_S
        longest_s = self.patience_s if patience_s is None else min(patience_s, self.patience_s)
        while True:
            try:
                return (yield Call(method, request, timeout_s or self.timeout_s))
            except PermilleError as error:
                wait_s = error.retry_after_s
                if wait_s is None and isinstance(error, AWAY):
                    # Not all clients at the same moment.
                    wait_s = pause_s * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing
                if wait_s is None or self.clock() - begun_s + wait_s > longest_s:
                    raise
            yield Pause(wait_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _name(operation: Operation | str) -> str:
    return operation if isinstance(operation, str) else operation.name


def _not_done(operation: Operation, limit_s: float | None) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"{operation.name} is not done after {limit_s:g} s, at {operation.progress.stage or 'its beginning'}",
        reason="NOT_DONE",
        help="it goes on: wait again, or cancel it",
        metadata={"operation": operation.name},
    )
