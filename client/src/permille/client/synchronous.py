"""The client for programs without asyncio; one may be shared by threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.client.connection import Connection
from permille.client.conversations import Call, Conversation, Manner, Operation, Pause, Tell
from permille.client.errors import AWAY, PermilleError, error_of_call
from permille.client.wishes import Measure, session_set

_T = TypeVar("_T")


class Client:
    """`addresses`, `ca`, `cert`, `key` as for `Connection`, `timeout_s` and `patience_s` as for `Manner`.

    Every method raises `PermilleError`: what the server said, after repeating for `patience_s` what may succeed later.
    """

    def __init__(
        self,
        addresses: str,
        *,
        ca: Path | str = "",
        cert: Path | str = "",
        key: Path | str = "",
        timeout_s: float = Manner.timeout_s,
        patience_s: float = Manner.patience_s,
    ) -> None:
        connection = Connection(addresses, ca, cert, key)
        self._manner = Manner(timeout_s, patience_s)
        credentials, options = connection.credentials, connection.options
        self._channels = [
            grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target, options)
            for target in connection.targets
        ]
        self._stubs: list[Any] = [coverage_pb2_grpc.CoverageServiceStub(channel) for channel in self._channels]
        self._turn = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections."""
        for channel in self._channels:
            channel.close()

    def start(self, wish: coverage_pb2.CoverageRequest, *, request_id: str = "") -> Operation:
        """Begins to record. The same `request_id` always finds the same operation; without one it is a new one."""
        return self._held(self._manner.start(wish, request_id))

    def wait(
        self, operation: Operation | str, *, progress: Tell | None = None, timeout_s: float | None = None
    ) -> coverage_pb2.CoverageResult:
        """Follows an operation, or its name, to its end; `progress` gets each change.

        Raises the error that it failed with, and `DeadlineExceeded` (NOT_DONE) after `timeout_s`: it goes on.
        """
        return self._held(self._manner.wait(operation, progress, timeout_s))

    def plan(self, wish: coverage_pb2.CoverageRequest, *, outlook: bool = False) -> coverage_pb2.Plan:
        """What `start` would do, at which cost; `outlook`: also what will probably be missing."""
        return self._held(self._manner.plan(wish, outlook=outlook))

    def get(self, operation: Operation | str) -> Operation:
        """An operation, or that of a name, as it is now."""
        return self._held(self._manner.get(operation))

    def operations(self, *, page_size: int = 0) -> Iterator[Operation]:
        """All operations, the newest first, page by page."""
        token = ""
        while True:
            page = self._held(self._manner.page(page_size, token))
            yield from page.operations
            token = page.next_page_token
            if not token:
                return

    def cancel(self, operation: Operation | str) -> Operation:
        """Asks for the end of an operation, or of that of a name; what was recorded is kept."""
        return self._held(self._manner.cancel(operation))

    def coverage(
        self,
        *,
        sessions: Sequence[str] = (),
        operation: str = "",
        target: str = "",
        functions: int = 20,
        edges: int = 20,
        paths: int = 0,
    ) -> coverage_pb2.GetCoverageResponse:
        """What has been seen by these sessions, by an operation, or of programs of a name; and what is missing.

        So many functions, calls of one by another, and call paths; paths take a walk through every call.
        """
        of = session_set(sessions, operation=operation, target=target)
        return self._held(self._manner.coverage(of, functions, edges, paths))

    def diff(
        self,
        a: coverage_pb2.SessionSet,
        b: coverage_pb2.SessionSet,
        *,
        measure: Measure = "instructions",
        limit: int = 20,
        paths: int = 0,
    ) -> coverage_pb2.DiffCoverageResponse:
        """What two sets of sessions (`session_set`) did differently, the most telling first.

        `measure`: what a function's share is a share of; `limit`: so many functions, and calls of one by another;
        `paths`: so many call paths, which take a walk through every call.
        """
        return self._held(self._manner.diff(a, b, measure, limit, paths))

    def _held(self, conversation: Conversation[_T]) -> _T:
        try:
            step = next(conversation)
            while True:
                try:
                    answer = self._done(step)
                except PermilleError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result

    def _done(self, step: Call | Pause) -> Any:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        turn = self._turn
        stub = self._stubs[turn % len(self._stubs)]
        try:
            return getattr(stub, step.method)(step.request, timeout=step.timeout_s)
        except grpc.RpcError as failure:
            error = error_of_call(failure)
            # Calls beside each other pass over one replica once.
            if isinstance(error, AWAY) and self._turn == turn:
                self._turn = turn + 1
            raise error from None
