"""Follows a long-running operation to its end, through the death and return of who works on it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from permille.api.operation.v1 import operation_pb2
from permille.cli.client import answer
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
    `cancels`: whether Ctrl-C asks for the operation's end, or only stops waiting for it.
    """

    def __init__(
        self,
        stub: Callable[[], Awaitable[Any]],
        *,
        tell: Callable[[operation_pb2.Progress], None],
        away: Callable[[PermilleError], None],
        patience_s: float,
        cancels: bool = True,
    ) -> None:
        self._stub = stub
        self._tell = tell
        self._away = away
        self._patience_s = patience_s
        self._cancels = cancels
        self._interrupted = asyncio.Event()
        self._interrupts = 0

    async def follow(self, operation: Operation) -> Operation:
        """The operation when it is done and well. Ctrl-C asks for its end, a second one stops waiting for it.

        Raises the error that it failed with, `Cancelled`, or `Unavailable` when this gives up; the operation goes on.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()

        def interrupt() -> None:
            self._interrupts += 1
            self._interrupted.set()
            if (self._interrupts > 1 or not self._cancels) and task is not None:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        try:
            done = await self._until_done(operation)
        except asyncio.CancelledError:
            raise (_left_alone if self._cancels else _goes_on)(operation) from None
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        error = operation_error(done)
        if error is not None:
            raise error
        return done

    async def _until_done(self, operation: Operation) -> Operation:
        backoff = Backoff(0.2, 2.0)
        answered = time.monotonic()
        cancelled = False
        while not operation.done:
            self._tell(operation.progress)
            try:
                if self._interrupted.is_set() and not cancelled:
                    operation = await self._cancel(operation)
                    cancelled = True
                else:
                    operation = await self._changed(operation, until_interrupted=not cancelled)
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

    async def _changed(self, operation: Operation, *, until_interrupted: bool) -> Operation:
        waiting = asyncio.create_task(self._wait(operation))
        pressed = asyncio.create_task(self._interrupted.wait())
        try:
            watched = {waiting, pressed} if until_interrupted else {waiting}
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
        changed: Operation = (await answer(stub.CancelOperation(request, timeout=_ANSWER_S))).operation
        return changed


def _gave_up(operation: Operation, error: PermilleError, patience_s: float) -> Unavailable:
    return Unavailable(
        f"for {patience_s:g} s nobody said how far {operation.name} is: {error.message}",
        reason="OPERATION_UNKNOWN",
        help="it goes on as soon as the mesh is back; `permille sessions` shows what came of it",
        metadata={"operation": operation.name},
    )


def _left_alone(operation: Operation) -> Cancelled:
    return Cancelled(
        f"{operation.name} was asked to end and is still ending",
        reason="INTERRUPTED",
        help="`permille sessions` shows what came of it",
        metadata={"operation": operation.name},
    )


def _goes_on(operation: Operation) -> Cancelled:
    return Cancelled(
        f"{operation.name} goes on",
        reason="INTERRUPTED",
        help=f"`permille coverage get {operation.name}` shows how far it is; `permille coverage cancel` ends it",
        metadata={"operation": operation.name},
    )
