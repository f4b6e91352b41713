"""A decode as the work of an operation, which has one owner at a time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.session_decoder import DecodedSession
from permille.decoder.domain.session_merge import SessionMerge
from permille.decoder.service.decode_work import DecodeWork
from permille.mesh.errors import DataLoss
from permille.mesh.etcd import Etcd
from permille.mesh.exhausted import exhausted
from permille.mesh.lease import Lease
from permille.mesh.operation_runner import Job
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectStore

from .decode_bench import Bench, StoreSession
from .held_object import HeldObject


async def replica(etcd: Etcd) -> OperationStore:
    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    return OperationStore(etcd, "decoder", lease=lease)


async def test_what_a_decode_has_stored_is_removed_by_the_owner_of_its_operation_alone(
    bench: Bench, store_session: StoreSession, store: ObjectStore, etcd: Etcd, hold: Callable[[str], HeldObject]
) -> None:
    await store_session()
    await store.put_stream("raw/s1/manifest.json", b"damaged")
    held = hold("raw/s1/manifest.json")
    request = decoder_pb2.DecodeRequest(session="nodes/n/sessions/s1")
    first, second = await replica(etcd), await replica(etcd)
    operation, _ = await first.create(request, "r1")
    begun = f"decodes/{operation.name.rpartition('/')[2]}/begun"
    work = DecodeWork(bench.decoder, most_at_once=1, patience_s=1)

    failing = asyncio.create_task(work(Job(first, operation, request)))
    await held.reached()
    await first.release(operation.name)
    assert await second.claim(operation.name)
    await store.put_stream(begun, b"")
    held.let_go()
    with pytest.raises(DataLoss):
        await failing
    assert await store.exists(begun)
    with pytest.raises(DataLoss):
        await work(Job(second, operation, request))
    assert not await store.exists(begun)


async def test_a_decode_that_fails_in_an_unexpected_way_leaves_nothing(
    bench: Bench, store_session: StoreSession, store: ObjectStore, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session()
    request = decoder_pb2.DecodeRequest(session="nodes/n/sessions/s1")
    operations = await replica(etcd)
    operation, _ = await operations.create(request, "r1")
    monkeypatch.setattr(SessionMerge, "session_row", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await DecodeWork(bench.decoder, most_at_once=1, patience_s=1)(Job(operations, operation, request))
    assert [info.key async for info in store.list("decodes/")] == []
    assert [info.key async for info in store.list("tables/") if info.key.endswith(".parquet")] == []


async def test_a_decode_waits_for_what_its_machine_lacks(
    bench: Bench, store_session: StoreSession, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session()
    request = decoder_pb2.DecodeRequest(session="nodes/n/sessions/s1")
    operations = await replica(etcd)
    operation, _ = await operations.create(request, "r1")
    decode, lacks = bench.decoder.decode, exhausted("decoder", OSError(errno.EMFILE, "too many open files"))
    lacking = [lacks] if lacks is not None else []

    async def decode_later(*arguments: Any, **options: Any) -> DecodedSession:
        if lacking:
            raise lacking.pop()
        return await decode(*arguments, **options)

    monkeypatch.setattr(bench.decoder, "decode", decode_later)
    result = await DecodeWork(bench.decoder, most_at_once=1, patience_s=60)(Job(operations, operation, request))
    assert result.instructions > 0


async def test_an_operation_that_is_taken_over_never_tells_less_than_before(
    bench: Bench, store_session: StoreSession, etcd: Etcd, hold: Callable[[str], HeldObject]
) -> None:
    await store_session()
    held = hold("raw/s1/manifest.json")
    request = decoder_pb2.DecodeRequest(session="nodes/n/sessions/s1")
    operations = await replica(etcd)
    operation, _ = await operations.create(request, "r1")
    await operations.update(operation.name, "DECODING", 50, 112, "bytes")
    job = Job(operations, await operations.get(operation.name), request)
    work = asyncio.create_task(DecodeWork(bench.decoder, most_at_once=1, patience_s=1)(job))
    await held.reached()
    told = (await operations.get(operation.name)).progress
    assert (told.stage, told.completed, told.total, told.unit) == ("DECODING", 50, 112, "bytes")
    held.let_go()
    await work
