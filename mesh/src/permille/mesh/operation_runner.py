"""Runs operations, one's own and those of owners that died, each to its end and by one process at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Generic, TypeVar

import structlog
from google.protobuf.message import Message
from permille.api.operation.v1.operation_pb2 import Progress
from permille.mesh.backoff import Backoff, until_available, until_written
from permille.mesh.errors import Aborted, Internal, NotFound, PermilleError, error_of
from permille.mesh.operation_names import operation_id
from permille.mesh.operations import Operation, OperationStore, Reservation
from permille.mesh.priority_gate import PriorityGate
from permille.mesh.unexpected import unexpected

_log = structlog.get_logger(__name__)
_RETRY_S = 1.0
# How long work rests at most before it is done again here because its end could not be written.
_LONGEST_REST_S = 60.0
# Of an error that has no room in etcd as it is.
_MOST_CHARACTERS = 1000
_Request = TypeVar("_Request", bound=Message)
_Written = TypeVar("_Written")


class Job(Generic[_Request]):
    """One operation being worked on. All writes wait for etcd where it is away or full."""

    def __init__(self, store: OperationStore, operation: Operation, request: _Request) -> None:
        self.operation = operation
        self.request = request
        # Set when somebody has asked for the end; the work then ends soon by raising `Cancelled`.
        self.cancel_requested = asyncio.Event()
        self._store = store
        self._telling = asyncio.Lock()
        self._saving = asyncio.Lock()
        # What this work goes on from. While it stood still another process may have owned the operation, and saved.
        self._since = 0

    @property
    def name(self) -> str:
        """`operations/<id>`."""
        return self.operation.name

    async def progress(
        self, stage: str, completed: int = 0, total: int = 0, unit: str = "", *, waiting: str = ""
    ) -> None:
        """Shows how far the work is, and what it waits for.

        Raises `Aborted` when another process has taken the operation over.
        """
        # In the order of the calls: parts of the work that end together do not set it back.
        async with self._telling:
            await until_written(lambda: self._store.update(self.name, stage, completed, total, unit, waiting=waiting))

    async def require_owned(self) -> None:
        """Raises `Aborted` when another process has taken the operation over, and perhaps ended it."""
        await until_available(lambda: self._store.require_owned(self.name))

    async def save(self, checkpoint: bytes) -> None:
        """Writes what a successor needs to go on. Raises `Aborted`, also when another process has saved since."""
        async with self._saving:
            self._since = await until_written(lambda: self._store.save(self.name, checkpoint, since=self._since))

    async def saved(self) -> bytes:
        """What was saved last, perhaps by a process that died; at first the checkpoint of the start."""
        saved = await until_available(lambda: self._store.checkpoint(self.name))
        self._since = saved.revision
        return saved.content

    async def finish(self, response: Message) -> None:
        """Ends the operation well. Raises `Aborted` as `save` does."""
        await until_available(lambda: self._store.finish(self.name, response, since=self._since))

    async def fail(self, error: PermilleError, *, keep_request: bool = True) -> None:
        """Ends the operation with an error. Raises as `OperationStore.fail` does."""
        await until_available(lambda: self._store.fail(self.name, error, since=self._since, keep_request=keep_request))


class OperationRunner(Generic[_Request]):
    """Runs `work` for each operation. After a crash it begins again, with `Job.saved`, and must not do things twice.

    A `PermilleError` fails the operation, anything else fails it as a defect with an id in the log. The end of this
    process gives its operations free for another replica, or for its successor. `most_at_once` are worked on; of those
    that wait the one with the highest `priority` is next.
    """

    def __init__(
        self,
        store: OperationStore,
        request_type: type[_Request],
        work: Callable[[Job[_Request]], Awaitable[Message]],
        *,
        most_at_once: int = 256,
        priority: Callable[[_Request], int] = lambda _: 0,
    ) -> None:
        self._store = store
        self._request_type = request_type
        self._work = work
        self._running: dict[str, asyncio.Task[None]] = {}
        self._unended: dict[str, Backoff] = {}
        self._slots = PriorityGate(lambda: most_at_once)
        self._priority = priority
        self._starting = 0
        self._changed = asyncio.Event()

    async def start(
        self,
        request: _Request,
        request_id: str,
        progress: Progress | None = None,
        *,
        checkpoint: bytes = b"",
        caller: str = "",
        reservation: Reservation | None = None,
    ) -> Operation:
        """Creates the operation and begins to work on it, or returns the one that the request_id made before.

        `checkpoint`: what `Job.saved` gives until the work saves something else.
        Raises what `OperationStore.create` raises.
        """
        self._starting += 1
        try:
            operation, created = await self._store.create(
                request, request_id, progress, checkpoint=checkpoint, caller=caller, reservation=reservation
            )
            if created:
                self._launch(operation)
        finally:
            self._starting -= 1
            self._changed.set()
        return operation

    async def run(self) -> None:
        """Takes over operations without an owner, now and whenever one dies; until cancelled."""
        observer = asyncio.create_task(self._adopt())
        try:
            await observer
        finally:
            observer.cancel()
            for task in list(self._running.values()):
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _adopt(self) -> None:
        pending: dict[str, bytes] = {}
        owners: dict[str, bytes] = {}

        async def follow(prefix: str, into: dict[str, bytes]) -> None:
            async for state in self._store.etcd.observe_prefix(prefix):
                into.clear()
                into.update({key.removeprefix(prefix): kv.value for key, kv in state.items()})
                self._changed.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._store.keys.pending, pending))
            group.create_task(follow(self._store.keys.owners, owners))
            while True:
                await self._changed.wait()
                self._changed.clear()
                for identity in sorted(pending):
                    try:
                        await self._settle(identity, owners.get(identity))
                    except PermilleError as error:
                        _log.warning("cannot take an operation over now", operation=identity, error=error.message)
                        await asyncio.sleep(_RETRY_S)
                        self._changed.set()

    async def _settle(self, identity: str, owner: bytes | None) -> None:
        name = f"operations/{identity}"
        if owner is None:
            # Also one that runs here, when the lease was lost while etcd was away.
            if await self._store.claim(name) and identity not in self._running:
                await self._take_over(name)
        elif owner == self._store.owner and identity not in self._running and not self._starting:
            # Created here, but the answer was lost on its way.
            await self._take_over(name)

    async def _take_over(self, name: str) -> None:
        operation = await self._store.get(name)
        if not operation.done:
            _log.info("taking over an operation", operation=name, stage=operation.progress.stage)
            self._launch(operation)

    def _launch(self, operation: Operation) -> None:
        identity = operation_id(operation.name)
        task = asyncio.create_task(self._to_the_end(operation), name=operation.name)
        self._running[identity] = task
        task.add_done_callback(lambda _: self._left(identity))

    def _left(self, identity: str) -> None:
        self._running.pop(identity, None)
        # It may have been claimed again while the work, refused for the loss of its lease, came to its end.
        self._changed.set()

    async def _to_the_end(self, operation: Operation) -> None:
        request = self._request_type()
        operation.request.Unpack(request)
        job = Job(self._store, operation, request)
        watcher = asyncio.create_task(self._watch_for_cancel(job))
        try:
            await self._attempt_or_rest(job)
        except asyncio.CancelledError:
            with suppress(PermilleError):
                await self._store.release(operation.name)
            raise
        finally:
            watcher.cancel()

    async def _attempt_or_rest(self, job: Job[_Request]) -> None:
        identity = operation_id(job.name)
        try:
            async with self._slot(job):
                await self._attempt(job)
        except Exception as error:
            _log.exception("cannot write the end of an operation", operation=job.name, exc_info=error)
            # It is still owned here and not done: once this has returned, the work begins again.
            await self._unended.setdefault(identity, Backoff(_RETRY_S, _LONGEST_REST_S)).pause()
        else:
            self._unended.pop(identity, None)

    @asynccontextmanager
    async def _slot(self, job: Job[_Request]) -> AsyncIterator[None]:
        """A place among those that are worked on. What is cancelled needs none: its work ends at once."""
        async with AsyncExitStack() as stack:
            entering = asyncio.create_task(stack.enter_async_context(self._slots.turn(self._priority(job.request))))
            cancelled = asyncio.create_task(job.cancel_requested.wait())
            try:
                await asyncio.wait({entering, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                entering.cancel()
                cancelled.cancel()
                await asyncio.gather(entering, cancelled, return_exceptions=True)
            yield

    async def _attempt(self, job: Job[_Request]) -> None:
        try:
            response = await self._work(job)
        except PermilleError as error:
            if error.reason == "OPERATION_TAKEN":
                _log.info("another process has taken the operation over", operation=job.name)
                return
            _log.info("operation failed", operation=job.name, reason=error.reason, error=error.message)
            await self._failed(job, error)
        except Exception as error:
            await self._failed(job, unexpected(self._store.service, error, operation=job.name))
        else:
            try:
                await self._ended(job, lambda: job.finish(response))
            except Internal as error:
                # Too large: no repetition makes it smaller.
                await self._failed(job, error)

    async def _failed(self, job: Job[_Request], error: PermilleError) -> None:
        try:
            await self._ended(job, lambda: job.fail(error))
        except Internal as refusal:
            _log.warning("an operation's error has no room in etcd", operation=job.name, error=refusal.message)
            await self._ended(job, lambda: job.fail(_in_short(error), keep_request=False))

    async def _ended(self, job: Job[_Request], write: Callable[[], Awaitable[None]]) -> None:
        """Repeats the end alone: the work is done, and would be begun again by who finds the operation unfinished."""
        pauses = Backoff(most_s=_RETRY_S)
        while True:
            try:
                return await write()
            except (Aborted, NotFound):
                # Another process has it, or had its end.
                return None
            except Internal:
                raise
            except PermilleError as error:
                _log.warning("cannot write the end of an operation now", operation=job.name, error=error.message)
            await pauses.pause()

    async def _watch_for_cancel(self, job: Job[_Request]) -> None:
        key = self._store.keys.cancels + operation_id(job.name)
        async for flag in self._store.etcd.observe(key):
            if flag is not None:
                job.cancel_requested.set()
                return


def _in_short(error: PermilleError) -> PermilleError:
    return error_of(
        error.code,
        f"{error.message[:_MOST_CHARACTERS]} (in short: all of it, and the request, have no room in etcd)",
        reason=error.reason,
        help="ask for less at once; the whole error is in the log of the service",
    )
