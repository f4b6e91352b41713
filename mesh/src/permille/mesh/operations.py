"""Long-running operations (AIP-151) in etcd: they outlive the call, the process and the replica that began them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from permille.api.operation.v1 import operation_pb2
from permille.mesh.errors import Aborted, Code, InvalidArgument, NotFound, PermilleError, Unavailable, error_of
from permille.mesh.etcd import Compare, Delete, Etcd, Get, KeyValue, Op, Put, exists, missing, unchanged, value_is
from permille.mesh.lease import Lease
from permille.mesh.operation_names import (
    operation_id,
    operation_name,
    page_token_of,
    read_page_token,
    require_request_id,
)

Operation = operation_pb2.Operation
_Ops = list[Op]

DEFAULT_PAGE_SIZE = 50
MOST_PAGE_SIZE = 1000
# gRPC's clients take answers of 4 MiB, where they are told nothing else.
_MOST_PAGE_BYTES = 3 << 20


@dataclass(frozen=True)
class Reservation:
    """What an operation takes while it is not done, for those who look before they start another one.

    `revision`: as of which `OperationStore.reservations` there is room for it; None: whatever others take.
    """

    content: bytes
    revision: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """What a successor goes on from, as of which revision of etcd."""

    content: bytes
    revision: int


class OperationKeys:
    """Where the parts of one service's operations are in etcd."""

    def __init__(self, service: str) -> None:
        self.records = f"/permille/v1/operations/{service}/"
        self.requests = f"/permille/v1/requests/{service}/"
        self.pending = f"/permille/v1/pending/{service}/"
        self.owners = f"/permille/v1/owners/{service}/"
        self.cancels = f"/permille/v1/cancels/{service}/"
        # The prefix itself is a key too, written with each reservation.
        self.reservations = f"/permille/v1/reservations/{service}/"


class OperationStore:
    """The operations of one service, shared by its replicas.

    An unfinished operation is owned by one process at a time through a leased key: only the owner changes it. What is
    finished is kept for `retention_s` and then vanishes, with its request_id.
    """

    def __init__(
        self,
        etcd: Etcd,
        service: str,
        *,
        lease: Lease,
        draining: asyncio.Event | None = None,
        retention_s: int = 7 * 24 * 3600,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.etcd = etcd
        self.service = service
        self.keys = OperationKeys(service)
        self.owner = secrets.token_hex(8).encode()
        self.lease = lease
        self._draining = draining or asyncio.Event()
        self._retention_s = retention_s
        self._clock_ns = clock_ns

    async def create(
        self,
        request: Message,
        request_id: str,
        progress: operation_pb2.Progress | None = None,
        *,
        checkpoint: bytes = b"",
        caller: str = "",
        reservation: Reservation | None = None,
    ) -> tuple[Operation, bool]:
        """A new operation owned by this process, or the one that this `request_id` made before; True when it is new.

        An empty `request_id` always makes a new one. `checkpoint`: what `checkpoint()` gives to the worker.
        Raises `InvalidArgument` for a malformed request_id or one that was used for another request, `Unavailable`
        without etcd, and `Aborted` (CONCURRENT_CHANGE) when others reserved something since the reservation's revision.
        """
        known_as = require_request_id(request_id) if request_id else secrets.token_hex(16)
        now_ns = self._clock_ns()
        identity = f"{now_ns // 1_000_000:012x}-{secrets.token_hex(4)}"
        operation = Operation(
            name=operation_name(identity),
            request_id=known_as,
            create_time=_timestamp(now_ns),
            update_time=_timestamp(now_ns),
            progress=progress,
            request=packed(request),
            caller=caller,
        )
        request_key = self.keys.requests + known_as
        free, reserve = self._reserving(identity, reservation)
        result = await self.lease.bound(
            lambda lease: self.etcd.txn(
                [missing(request_key), *free],
                [
                    *reserve,
                    Put(request_key, identity.encode()),
                    Put(self.keys.records + identity, operation.SerializeToString()),
                    Put(self.keys.pending + identity, checkpoint),
                    Put(self.keys.owners + identity, self.owner, lease),
                ],
                [Get(request_key)],
            )
        )
        if result.succeeded:
            return operation, True
        before = result.reads[0]
        if before is None:
            raise _changed(known_as)
        return _same_request(await self.get(operation_name(before.value.decode())), request), False

    async def reservations(self) -> tuple[dict[str, bytes], int]:
        """What unfinished operations have reserved, by their ids, and the revision of the newest reservation."""
        prefix = self.keys.reservations
        found = {kv.key.removeprefix(prefix): kv for kv in await self.etcd.prefix(prefix)}
        newest = found.pop("", None)
        return {identity: kv.value for identity, kv in found.items()}, newest.mod_revision if newest else 0

    async def reserve(self, name: str, reservation: Reservation) -> bool:
        """Replaces what an operation has reserved; False when others reserved something since the revision.

        Raises `Aborted` when this process is not the owner any more.
        """
        identity = operation_id(name)
        free, reserve = self._reserving(identity, reservation)
        return bool(await self._as_owner(identity, free, reserve))

    async def find(self, request: Message, request_id: str) -> Operation | None:
        """The operation that this request made before, if any.

        Raises `InvalidArgument` as `create` does, `Unavailable` without etcd.
        """
        if not request_id:
            return None
        known = await self.etcd.get(self.keys.requests + require_request_id(request_id))
        return _same_request(await self.get(operation_name(known.value.decode())), request) if known else None

    async def get(self, name: str) -> Operation:
        """The operation as it is now. Raises `InvalidArgument` for a malformed name, `NotFound`, `Unavailable`."""
        return _operation(await self._record(operation_id(name)), name)

    async def list(
        self, page_size: int = 0, page_token: str = "", *, caller: str | None = None
    ) -> tuple[list[Operation], str]:
        """The newest operations first, and the token of the next page ("" after the last).

        `caller`: only of this one. `page_size` 0: 50; at most 1,000, and fewer where they are large. Raises
        `InvalidArgument` for a negative size or a foreign token.
        """
        if page_size < 0:
            raise InvalidArgument(
                f"page_size is {page_size}", reason="PAGE_SIZE", help="use 0 for the default, or 1 to 1,000"
            )
        size = min(page_size or DEFAULT_PAGE_SIZE, MOST_PAGE_SIZE)
        before = self.keys.records + read_page_token(page_token) if page_token else ""
        page: list[Operation] = []
        room = _MOST_PAGE_BYTES
        at_once = min(size, DEFAULT_PAGE_SIZE) + 1
        async with aclosing(self.etcd.newest(self.keys.records, before=before, page_size=at_once)) as records:
            async for record in records:
                operation = Operation.FromString(record.value)
                if caller is not None and operation.caller != caller:
                    continue
                room -= len(record.value)
                if page and (len(page) == size or room < 0):
                    return page, page_token_of(operation_id(page[-1].name))
                page.append(operation)
        return page, ""

    async def wait(self, name: str, timeout_s: float | None = None, newer_than_ns: int = 0) -> Operation:
        """The operation when it is done, or was changed after `newer_than_ns` (0: only done counts), or at the timeout.

        Raises `Unavailable` when this process drains: the caller repeats the call, to another replica.
        """
        identity = operation_id(name)
        latest = await self.get(name)
        try:
            async with asyncio.timeout(timeout_s):
                latest = await self._until(identity, name, newer_than_ns)
        except TimeoutError:
            latest = await self.get(name)
        return latest

    async def cancel(self, name: str) -> Operation:
        """Asks for the end of an operation; one that is done stays as it is. Raises `NotFound`."""
        identity = operation_id(name)
        await self.get(name)
        await self.etcd.txn([exists(self.keys.pending + identity)], [Put(self.keys.cancels + identity, b"")])
        return await self.get(name)

    async def update(
        self, name: str, stage: str, completed: int = 0, total: int = 0, unit: str = "", *, waiting: str = ""
    ) -> Operation:
        """Writes progress. Raises `Aborted` (OPERATION_TAKEN) when this process is not the owner any more."""

        def change(operation: Operation) -> None:
            operation.progress.CopyFrom(
                operation_pb2.Progress(stage=stage, completed=completed, total=total, unit=unit, waiting=waiting)
            )

        return await self._change(operation_id(name), change, lambda _: [])

    async def finish(self, name: str, response: Message, *, since: int = 0) -> Operation:
        """Ends an operation well, with its result. Raises `Aborted` as `save` does."""

        def change(operation: Operation) -> None:
            operation.response.CopyFrom(packed(response))

        return await self._end(operation_id(name), change, since)

    async def fail(self, name: str, error: PermilleError, *, since: int = 0, keep_request: bool = True) -> Operation:
        """Ends an operation with an error. Raises `Aborted` as `save` does, `Internal` where etcd has no room for it.

        `keep_request`: without its request the record is always small enough.
        """

        def change(operation: Operation) -> None:
            if not keep_request:
                operation.ClearField("request")
            operation.error.CopyFrom(
                operation_pb2.Error(
                    code=int(error.code),
                    message=error.message,
                    reason=error.reason,
                    help=error.help,
                    metadata=error.metadata,
                )
            )

        return await self._end(operation_id(name), change, since)

    async def checkpoint(self, name: str) -> Checkpoint:
        """What `save` wrote last; empty at first, and when the operation is done."""
        pending = await self.etcd.get(self.keys.pending + operation_id(name))
        return Checkpoint(pending.value, pending.mod_revision) if pending else Checkpoint(b"", 0)

    async def save(self, name: str, checkpoint: bytes, *, since: int = 0) -> int:
        """Writes what a successor needs to go on; the revision of what was written.

        `since`: the revision that the work goes on from; 0: whatever was saved. Raises `Aborted` (OPERATION_TAKEN) when
        this process is not the owner any more, and when another one was meanwhile and has saved something newer.
        """
        identity = operation_id(name)
        pending = self.keys.pending + identity
        revision = await self._as_owner(identity, [exists(pending)], [Put(pending, checkpoint)], since)
        if not revision:
            raise _taken(name)
        return revision

    async def require_owned(self, name: str) -> None:
        """Raises `Aborted` (OPERATION_TAKEN) when this process is not the owner any more, or the operation is done."""
        identity = operation_id(name)
        if not await self._as_owner(identity, [exists(self.keys.pending + identity)], []):
            raise _taken(name)

    async def claim(self, name: str) -> bool:
        """Makes this process the owner of an unfinished operation that has none; False when another was first."""
        identity = operation_id(name)
        owner = self.keys.owners + identity
        free = [missing(owner), exists(self.keys.pending + identity)]
        result = await self.lease.bound(lambda lease: self.etcd.txn(free, [Put(owner, self.owner, lease)]))
        return result.succeeded

    async def release(self, name: str) -> None:
        """Gives an unfinished operation up, so that another process can claim it at once."""
        owner = self.keys.owners + operation_id(name)
        await self.etcd.txn([value_is(owner, self.owner)], [Delete(owner)])

    def _reserving(self, identity: str, reservation: Reservation | None) -> tuple[Sequence[Compare], _Ops]:
        if reservation is None:
            return [], []
        newest = self.keys.reservations
        free = [] if reservation.revision is None else [unchanged(newest, reservation.revision)]
        return free, [Put(newest, identity.encode()), Put(newest + identity, reservation.content)]

    async def _until(self, identity: str, name: str, newer_than_ns: int) -> Operation:
        follower = asyncio.create_task(self._follow(identity, name, newer_than_ns))
        drained = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait({follower, drained}, return_when=asyncio.FIRST_COMPLETED)
            if follower.done():
                return follower.result()
            raise Unavailable(
                f"this replica of {self.service} is shutting down",
                reason="DRAINING",
                help="call again; another replica, or this one after its restart, answers",
                retry_after_s=1.0,
            )
        finally:
            follower.cancel()
            drained.cancel()
            await asyncio.gather(follower, drained, return_exceptions=True)

    async def _follow(self, identity: str, name: str, newer_than_ns: int) -> Operation:
        async with aclosing(self.etcd.observe(self.keys.records + identity)) as changes:
            async for record in changes:
                operation = _operation(record, name)
                changed_ns = operation.update_time.ToNanoseconds()
                if operation.done or (newer_than_ns and changed_ns > newer_than_ns):
                    return operation
        raise AssertionError("an observer never ends by itself")

    async def _record(self, identity: str) -> KeyValue | None:
        return await self.etcd.get(self.keys.records + identity)

    async def _end(self, identity: str, change: Callable[[Operation], None], since: int) -> Operation:
        retention = await self.etcd.grant(self._retention_s)

        def done(operation: Operation) -> None:
            change(operation)
            operation.done = True

        def tidy(operation: Operation) -> _Ops:
            return [
                Put(self.keys.requests + operation.request_id, identity.encode(), retention),
                Delete(self.keys.pending + identity),
                Delete(self.keys.owners + identity),
                Delete(self.keys.cancels + identity),
                Delete(self.keys.reservations + identity),
            ]

        return await self._change(identity, done, tidy, retention, since)

    async def _change(
        self,
        identity: str,
        change: Callable[[Operation], None],
        more: Callable[[Operation], _Ops],
        lease: int = 0,
        since: int = 0,
    ) -> Operation:
        while True:
            record = await self._record(identity)
            operation = _operation(record, operation_name(identity))
            if record is None or operation.done:
                raise _taken(operation.name)
            change(operation)
            # Strictly later than before, whatever the clock does: waiters compare.
            last_ns = operation.update_time.ToNanoseconds()
            operation.update_time.CopyFrom(_timestamp(max(self._clock_ns(), last_ns + 1)))
            write = Put(self.keys.records + identity, operation.SerializeToString(), lease)
            then = [write, *more(operation)]
            if await self._as_owner(identity, [unchanged(write.key, record.mod_revision)], then, since):
                return operation
            # This process wrote it meanwhile, in another task.

    async def _as_owner(self, identity: str, compares: Sequence[Compare], then: Sequence[Op], since: int = 0) -> int:
        """The revision in which it is done; 0 where the compares did not hold. Raises `Aborted` as `save` does."""
        owner, pending = self.keys.owners + identity, self.keys.pending + identity
        fenced = [value_is(owner, self.owner), *([unchanged(pending, since)] if since else []), *compares]
        reads = [Get(owner), Get(pending)]
        result = await self.etcd.txn(fenced, then, reads)
        # The lease may have run out while etcd was away: who comes first owns it again.
        if not result.succeeded and result.reads[0] is None and await self.claim(operation_name(identity)):
            result = await self.etcd.txn(fenced, then, reads)
        if result.succeeded:
            return result.revision
        holder, saved = result.reads
        if holder is None or holder.value != self.owner or (since and (saved is None or saved.mod_revision != since)):
            raise _taken(operation_name(identity))
        return 0


def operation_error(operation: Operation) -> PermilleError | None:
    """Why an operation failed, as the error that its work raised; None when it did not."""
    if not operation.HasField("error"):
        return None
    failed = operation.error
    metadata: Mapping[str, str] = dict(failed.metadata)
    code = failed.code or int(Code.UNKNOWN)
    return error_of(code, failed.message, reason=failed.reason, help=failed.help, metadata=metadata)


def packed(message: Message) -> AnyMessage:
    """The message as Any, always with the same bytes for the same content."""
    wrapped = AnyMessage()
    wrapped.Pack(message, deterministic=True)
    return wrapped


def _operation(record: KeyValue | None, name: str) -> Operation:
    if record is None:
        raise NotFound(
            f"there is no {name}",
            reason="OPERATION_NOT_FOUND",
            help="finished operations are kept for a week; `permille sessions` lists what was recorded",
            metadata={"operation": name},
        )
    return Operation.FromString(record.value)


def _same_request(existing: Operation, request: Message) -> Operation:
    # One whose end had no room for the request was made by whoever has its request_id.
    if not existing.HasField("request") or existing.request == packed(request):
        return existing
    raise InvalidArgument(
        f"the request_id {existing.request_id!r} was used before for another request, {existing.name}",
        reason="REQUEST_ID_REUSED",
        help="use a new request_id for each new request, and the same one only to repeat the same request",
        metadata={"request_id": existing.request_id, "operation": existing.name},
    )


def _taken(name: str) -> Aborted:
    return Aborted(
        f"{name} is owned by another process, was meanwhile, or is done",
        reason="OPERATION_TAKEN",
        help="nothing to do: the other one goes on with it",
        metadata={"operation": name},
    )


def _changed(request_id: str) -> Aborted:
    return Aborted(
        f"the request {request_id!r} changed at the same time",
        reason="CONCURRENT_CHANGE",
        help="try again",
        retry_after_s=0.1,
    )


def _timestamp(ns: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(ns)
    return stamp
