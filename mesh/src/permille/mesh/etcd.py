"""A thin typed client of etcd on aetcd's stubs: whatever goes wrong with etcd is `Unavailable`, with what to do."""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from permille.mesh.backoff import Backoff
from permille.mesh.config import MeshConfig
from permille.mesh.errors import FailedPrecondition, Internal, ResourceExhausted, Unavailable
from permille.mesh.plaintext import require_loopback

# aetcd carries no types.
rpc: Any = importlib.import_module("aetcd.rpc")

_ATTEMPTS = 5
# What is read with all that begins alike is read in pages of about this size, the first one of so many keys.
_PAGE_BYTES = 3 << 20
_FIRST_PAGE, _MOST_PAGE = 32, 1000
# A statistic that nobody has added to for so long is of a program that nobody records any more.
_STATISTIC_S = 90 * 24 * 3600
# etcd's default for a transaction is 128.
_MOST_OPS = 100
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # etcd closes connections that ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
    # etcd bounds what is written at once. What was written so is read with all that begins as its key does.
    ("grpc.max_receive_message_length", -1),
)


@dataclass(frozen=True)
class KeyValue:
    """One key as etcd holds it; `mod_revision` changes with every put, `lease` is 0 for a key that stays."""

    key: str
    value: bytes
    mod_revision: int
    create_revision: int
    lease: int


@dataclass(frozen=True)
class Put:
    """Part of a transaction: write a key."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True)
class Delete:
    """Part of a transaction: remove a key, if it is there."""

    key: str


@dataclass(frozen=True)
class Get:
    """Part of a transaction: read a key."""

    key: str


Op = Put | Delete | Get


@dataclass(frozen=True)
class Compare:
    """A condition of a transaction; made by `missing`, `exists`, `unchanged` and `value_is`."""

    message: Any


@dataclass(frozen=True)
class TxnResult:
    """Whether the compares held, what the `Get`s of the branch taken read, in order, and as of which revision."""

    succeeded: bool
    reads: list[KeyValue | None]
    revision: int


def missing(key: str) -> Compare:
    """The key does not exist."""
    return Compare(
        rpc.Compare(key=key.encode(), target=rpc.Compare.VERSION, result=rpc.Compare.EQUAL, version=0),
    )


def exists(key: str) -> Compare:
    """The key exists."""
    return Compare(
        rpc.Compare(key=key.encode(), target=rpc.Compare.VERSION, result=rpc.Compare.GREATER, version=0),
    )


def unchanged(key: str, mod_revision: int) -> Compare:
    """Nobody has put or deleted the key since it was read."""
    return Compare(
        rpc.Compare(key=key.encode(), target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=mod_revision),
    )


def value_is(key: str, value: bytes) -> Compare:
    """The key exists and has this value."""
    return Compare(
        rpc.Compare(key=key.encode(), target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value),
    )


def connect(config: MeshConfig) -> Etcd:
    """A client for the configured etcd; it connects at the first request.

    Raises `Unavailable` when no etcd is known, `FailedPrecondition` for plain text to another machine.
    """
    return Etcd(config.etcd_endpoints(), timeout_s=config.etcd_timeout_s, credentials=_credentials(config))


class Etcd:
    """Requests to one etcd cluster. Keys are text, values bytes; safe for concurrent use in one event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_s: float = 5.0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        if credentials is None:
            for endpoint in endpoints:
                require_loopback(endpoint, what="talk to etcd at", setting="etcd_ca, etcd_cert and etcd_key")
        self.endpoints = tuple(endpoints)
        self._timeout_s = timeout_s
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._current = 0

    async def get(self, key: str) -> KeyValue | None:
        """The key, or None."""
        reply = await self._call(lambda c: rpc.KVStub(c).Range, rpc.RangeRequest(key=key.encode()))
        return _key_value(reply.kvs[0]) if reply.kvs else None

    async def values(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Those of these keys that are there."""
        wanted, found = list(keys), list[KeyValue | None]()
        for start in range(0, len(wanted), _MOST_OPS):
            found += (await self.txn([], [Get(key) for key in wanted[start : start + _MOST_OPS]])).reads
        return {one.key: one.value for one in found if one is not None}

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Writes the key; the revision of the change."""
        request = rpc.PutRequest(key=key.encode(), value=value, lease=lease)
        reply = await self._call(lambda c: rpc.KVStub(c).Put, request)
        return int(reply.header.revision)

    async def delete(self, key: str) -> bool:
        """Removes the key; whether it was there."""
        reply = await self._call(lambda c: rpc.KVStub(c).DeleteRange, rpc.DeleteRangeRequest(key=key.encode()))
        return bool(reply.deleted)

    async def prefix(
        self, prefix: str, *, limit: int = 0, before: str = "", newest_first: bool = False
    ) -> list[KeyValue]:
        """The keys that begin with `prefix`, sorted by key, or from the last one back with `newest_first`.

        `limit`: at most so many; 0: all, as they are at one moment. `before`: only keys that sort before this one.
        """
        end = before.encode() if before else _after(prefix)
        if not limit:
            found, _ = await self._all(prefix, end)
            return found[::-1] if newest_first else found
        request = rpc.RangeRequest(
            key=prefix.encode(),
            range_end=end,
            limit=limit,
            sort_target=rpc.RangeRequest.KEY,
            sort_order=rpc.RangeRequest.DESCEND if newest_first else rpc.RangeRequest.ASCEND,
        )
        reply = await self._call(lambda c: rpc.KVStub(c).Range, request)
        return [_key_value(kv) for kv in reply.kvs]

    async def newest(self, prefix: str, *, before: str = "", page_size: int = 1000) -> AsyncGenerator[KeyValue, None]:
        """The keys that begin with `prefix` from the last one back, `page_size` at a time; `before` as in `prefix`."""
        while True:
            page = await self.prefix(prefix, limit=page_size, before=before, newest_first=True)
            for kv in page:
                yield kv
            if len(page) < page_size:
                return
            before = page[-1].key

    async def txn(self, compares: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        """Runs `then` if every compare holds, else `otherwise`; all of it at once or nothing."""
        request = rpc.TxnRequest(
            compare=[compare.message for compare in compares],
            success=[_request_op(op) for op in then],
            failure=[_request_op(op) for op in otherwise],
        )
        reply = await self._call(lambda c: rpc.KVStub(c).Txn, request)
        taken = then if reply.succeeded else otherwise
        reads = [
            _key_value(response.response_range.kvs[0]) if response.response_range.kvs else None
            for op, response in zip(taken, reply.responses, strict=True)
            if isinstance(op, Get)
        ]
        return TxnResult(bool(reply.succeeded), reads, int(reply.header.revision))

    async def replace(
        self, key: str, change: Callable[[bytes | None], Awaitable[bytes | None]], *, kept_s: int = _STATISTIC_S
    ) -> None:
        """Writes what `change` makes of the value (None: no key), or nothing where that is None.

        Where somebody else was quicker it changes the newer value, and gives up after five attempts; `kept_s` after the
        last change the key goes: for statistics, not for state. Raises `Unavailable`, and what `change` raises.
        """
        for _ in range(_ATTEMPTS):
            before = await self.get(key)
            value = await change(before.value if before else None)
            if value is None:
                return
            held = unchanged(key, before.mod_revision) if before else missing(key)
            # The key's own lease, begun anew by its sign of life.
            own = before.lease if before else 0
            lease = own if own and await self.keep_alive(own) else await self.grant(kept_s)
            if (await self.txn([held], [Put(key, value, lease)])).succeeded:
                return
            if lease != own:
                await self.revoke(lease)

    async def grant(self, ttl_s: int) -> int:
        """A new lease's id; keys put under it vanish `ttl_s` seconds after the last sign of life."""
        reply = await self._call(lambda c: rpc.LeaseStub(c).LeaseGrant, rpc.LeaseGrantRequest(TTL=ttl_s))
        return int(reply.ID)

    async def keep_alive(self, lease: int, *, within_s: float = math.inf) -> bool:
        """A sign of life for a lease; False when etcd does not know it any more.

        Raises `Unavailable` when there is no answer `within_s`, or within the timeout of all calls.
        """
        channel = self._channel()
        call = rpc.LeaseStub(channel).LeaseKeepAlive(timeout=min(within_s, self._timeout_s))
        try:
            await call.write(rpc.LeaseKeepAliveRequest(ID=lease))
            reply = await call.read()
            return reply is not grpc.aio.EOF and int(reply.TTL) > 0
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._lost(error) from None
        finally:
            call.cancel()

    async def revoke(self, lease: int) -> None:
        """Ends a lease; its keys vanish now."""
        with suppress(_LeaseGone):
            await self._call(lambda c: rpc.LeaseStub(c).LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease))

    async def members(self) -> list[str]:
        """The names of the cluster's members."""
        reply = await self._call(lambda c: rpc.ClusterStub(c).MemberList, rpc.MemberListRequest())
        return [str(member.name) for member in reply.members]

    async def observe(self, key: str) -> AsyncGenerator[KeyValue | None, None]:
        """The present value of a key, then each later one (changes close together may come as one).

        While etcd is away it waits; afterwards it goes on with the value that is true then.
        """
        async with aclosing(self._states(key, b"")) as states:
            async for state in states:
                yield state.get(key)

    async def observe_prefix(self, prefix: str) -> AsyncGenerator[dict[str, KeyValue], None]:
        """All keys below a prefix as they are now, then again after each change; like `observe`."""
        async with aclosing(self._states(prefix, _after(prefix))) as states:
            async for state in states:
                yield dict(state)

    async def close(self) -> None:
        """Closes the connections."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def _all(self, start: str, end: bytes) -> tuple[list[KeyValue], int]:
        """The keys from `start` to `end` (b"": that one), sorted, page by page, all as of the revision returned.

        Raises `Unavailable` also where etcd has compacted it meanwhile.
        """
        found: list[KeyValue] = []
        key, limit, revision = start.encode(), _FIRST_PAGE, 0
        while True:
            request = rpc.RangeRequest(key=key, range_end=end, limit=limit, revision=revision)
            reply = await self._call(lambda c: rpc.KVStub(c).Range, request)
            found += map(_key_value, reply.kvs)
            revision = revision or int(reply.header.revision)
            if not reply.more:
                return found, revision
            key = bytes(reply.kvs[-1].key) + b"\0"
            limit = max(1, min(_MOST_PAGE, _PAGE_BYTES * len(reply.kvs) // reply.ByteSize()))

    async def _states(self, start: str, end: bytes) -> AsyncGenerator[dict[str, KeyValue], None]:
        pauses = Backoff(most_s=2.0)
        while True:
            try:
                found, revision = await self._all(start, end)
                state = {kv.key: kv for kv in found}
                yield state
                pauses.reset()
                async with aclosing(self._events(start, end, revision + 1)) as changes:
                    async for events in changes:
                        _apply(state, events)
                        yield state
            except Unavailable:
                await pauses.pause()

    async def _events(self, start: str, end: bytes, revision: int) -> AsyncGenerator[Sequence[Any], None]:
        # A member cut off from its cluster ends the watch instead of staying silent.
        call = rpc.WatchStub(self._channel()).Watch(metadata=(("hasleader", "true"),))
        create = rpc.WatchCreateRequest(key=start.encode(), range_end=end, start_revision=revision)
        try:
            await call.write(rpc.WatchRequest(create_request=create))
            async for reply in call:
                if reply.canceled:
                    # Compacted, or the member is going away: the caller reads the state anew.
                    return
                if reply.events:
                    yield reply.events
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._lost(error) from None
        finally:
            call.cancel()

    async def _call(self, method: Callable[[grpc.aio.Channel], Callable[..., Awaitable[Any]]], request: Any) -> Any:
        try:
            return await method(self._channel())(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._lost(error) from None

    def _channel(self) -> grpc.aio.Channel:
        endpoint = self.endpoints[self._current % len(self.endpoints)]
        channel = self._channels.get(endpoint)
        if channel is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(endpoint, self._credentials, options=_CHANNEL_OPTIONS)
            self._channels[endpoint] = channel
        return channel

    def _lost(self, error: Exception) -> Exception:
        if isinstance(error, grpc.aio.AioRpcError):
            details = error.details() or error.code().name
            if error.code() == grpc.StatusCode.NOT_FOUND and "lease" in details:
                return _LeaseGone(details, reason="ETCD_LEASE_GONE")
            if "database space exceeded" in details:
                return ResourceExhausted(
                    f"etcd is full and writes nothing until its alarm NOSPACE is disarmed: {details}",
                    reason="ETCD_FULL",
                    help="make room in etcd: etcdctl compact REVISION, etcdctl defrag, then etcdctl alarm disarm"
                    ' (docs/operations.md, "When etcd is full")',
                    retry_after_s=30.0,
                )
            if "revision has been compacted" in details:
                return Unavailable(
                    f"etcd was compacted while it was read: {details}",
                    reason="ETCD_COMPACTED",
                    help="nothing is lost; ask again",
                    retry_after_s=0.1,
                )
            if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
                return Internal(f"etcd did not accept a request: {details}", reason="ETCD_REQUEST")
            if error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE):
                return Internal(f"etcd did not accept a request: {details}", reason="ETCD_REQUEST")
        else:
            details = str(error) or "the connection was closed"
        self._current += 1
        endpoints = ", ".join(self.endpoints)
        return Unavailable(
            f"etcd at {endpoints} does not answer: {details}",
            reason="ETCD_UNAVAILABLE",
            help="is etcd running? `permille doctor` checks it, `permille up` starts one, --etcd names another",
            metadata={"endpoints": endpoints},
            retry_after_s=1.0,
        )


class _LeaseGone(FailedPrecondition):
    """A put under a lease that etcd has forgotten."""


def _credentials(config: MeshConfig) -> grpc.ChannelCredentials | None:
    if config.etcd_ca is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=config.etcd_ca.read_bytes(),
        private_key=config.etcd_key.read_bytes() if config.etcd_key else None,
        certificate_chain=config.etcd_cert.read_bytes() if config.etcd_cert else None,
    )


def _key_value(kv: Any) -> KeyValue:
    return KeyValue(
        kv.key.decode(), bytes(kv.value), int(kv.mod_revision), int(kv.create_revision), lease=int(kv.lease)
    )


def _request_op(op: Op) -> Any:
    match op:
        case Put(key, value, lease):
            return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value, lease=lease))
        case Delete(key):
            return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key.encode()))
        case Get(key):
            return rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode()))


def _apply(state: dict[str, KeyValue], events: Sequence[Any]) -> None:
    for event in events:
        kv = _key_value(event.kv)
        if event.type == event.DELETE:
            state.pop(kv.key, None)
        else:
            state[kv.key] = kv


def _after(prefix: str) -> bytes:
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])
