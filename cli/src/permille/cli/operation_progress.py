"""Follows a long-running operation to its end, through the death and return of who works on it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from permille.api.operation.v1 import operation_pb2
from permille.cli.client import answer
from permille.cli.heeded_signals import heeded
from permille.cli.patience import AWAY
from permille.mesh.backoff import Backoff
from permille.mesh.errors import Cancelled, PermilleError, Unavailable
from permille.mesh.operations import operation_error

_POLL_MS = 1_000
# The call itself may take longer than the wait it asks for.
_ANSWER_S = _POLL_MS / 1000 + 10

Operation = operation_pb2.Operation


class OperationProgress:
    """`stub` gives the service's stub anew for each call; it has WaitOperation and CancelOperation.

    `tell` gets each progress, `away` why nobody answers now; after `patience_s` without an answer it gives up.
    `cancels`: whether Ctrl-C asks for the operation's end, or only stops waiting for it. `later`: what shows how an
    operation goes on for which nobody waits any more.
    """

    def __init__(
        self,
        stub: Callable[[], Awaitable[Any]],
        *,
        tell: Callable[[operation_pb2.Progress], None],
        away: Callable[[PermilleError], None],
        patience_s: float,
        later: str,
        cancels: bool = True,
    ) -> None:
        self._stub = stub
        self._tell = tell
        self._away = away
        self._patience_s = patience_s
        self._later = later
        self._cancels = cancels
        self._interrupted = asyncio.Event()
        self._asking = False
        self._asked = False

    async def follow(self, operation: Operation) -> Operation:
        """The operation when it is done and well. Ctrl-C or SIGTERM asks for its end, a second stops waiting for it.

        A terminal that is gone (SIGHUP) only stops waiting: nobody asked for the end of what was begun there.

        Raises the error that it failed with, `Cancelled`, or `Unavailable` when this gives up; the operation goes on.
        """
        task = asyncio.current_task()

        def leave() -> None:
            if task is not None:
                task.cancel()

        def interrupt() -> None:
            if self._interrupted.is_set() or not self._cancels:
                leave()
            self._interrupted.set()

        try:
            with heeded({signal.SIGINT: interrupt, signal.SIGTERM: interrupt, signal.SIGHUP: leave}):
                done = await self._until_done(operation)
        except asyncio.CancelledError:
            raise self._left(operation) from None
        error = operation_error(done)
        if error is not None:
            raise error
        return done

    async def _until_done(self, operation: Operation) -> Operation:
        backoff = Backoff(0.2, 2.0)
        answered = time.monotonic()
        while not operation.done:
            self._tell(operation.progress)
            try:
                if self._interrupted.is_set() and not self._asked:
                    operation = await self._cancel(operation)
                else:
                    operation = await self._changed(operation)
            except PermilleError as error:
                if error.code not in AWAY:
                    raise
                if time.monotonic() - answered > self._patience_s:
                    raise _gave_up(operation, error, self._patience_s) from None
                self._away(error)
                await backoff.pause()
                continue
            answered = time.monotonic()
            backoff.reset()
        self._tell(operation.progress)
        return operation

    async def _changed(self, operation: Operation) -> Operation:
        waiting = asyncio.create_task(self._wait(operation))
        pressed = asyncio.create_task(self._interrupted.wait())
        try:
            watched = {waiting} if self._asked else {waiting, pressed}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else operation
        finally:
            for task in (waiting, pressed):
                task.cancel()
            await asyncio.gather(waiting, pressed, return_exceptions=True)

    async def _wait(self, operation: Operation) -> Operation:
        request = operation_pb2.WaitOperationRequest(
            name=operation.name, timeout_ms=_POLL_MS, newer_than=operation.update_time
        )
        stub = await self._stub()
        changed: Operation = (await answer(stub.WaitOperation(request, timeout=_ANSWER_S))).operation
        return changed

    async def _cancel(self, operation: Operation) -> Operation:
        stub = await self._stub()
        request = operation_pb2.CancelOperationRequest(name=operation.name)
        self._asking = True
        changed: Operation = (await answer(stub.CancelOperation(request, timeout=_ANSWER_S))).operation
        self._asked = True
        return changed

    def _left(self, operation: Operation) -> Cancelled:
        state = "goes on"
        if self._asked:
            state = "was asked to end and is still ending"
        elif self._asking:
            state = "goes on, unless it still heard that it is to end"
        return Cancelled(
            f"{operation.name} {state}",
            reason="INTERRUPTED",
            help=self._later,
            metadata={"operation": operation.name},
        )


def _gave_up(operation: Operation, error: PermilleError, patience_s: float) -> Unavailable:
    return Unavailable(
        f"for {patience_s:g} s nobody said how far {operation.name} is: {error.message}",
        reason="OPERATION_UNKNOWN",
        help="it goes on as soon as the mesh is back; `permille sessions` shows what came of it",
        metadata={"operation": operation.name},
    )
