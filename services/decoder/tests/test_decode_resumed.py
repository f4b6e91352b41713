"""Decodes that died and are begun again, or never are."""

from __future__ import annotations

import asyncio
import fcntl
import re
from collections.abc import AsyncIterable, Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from permille.decoder.domain import part_decoder
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.table_part import WrittenPart
from permille.decoder.service.store_tidying import StoreTidying
from permille.mesh.errors import Aborted, NotFound, Unavailable
from permille.mesh.store import ObjectInfo, ObjectStore
from permille.mesh.store.folder import FolderStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import TableFile

from .decode_bench import Bench, StoreSession
from .held_object import HeldObject


class Interrupted(SegmentPool[PartTask, bytes]):
    """Counts parts, and after `most` of them the store is away."""

    most = 1000
    parts = 0
    tasks: tuple[PartTask, ...] = ()

    async def run(self, task: PartTask, **options: Any) -> bytes:
        self.parts += 1
        self.tasks += (task,)
        if self.parts > self.most:
            raise Unavailable("the store is away", reason="STORE_UNAVAILABLE", help="wait")
        return await super().run(task, **options)


async def begun(store: ObjectStore, folder: Path) -> tuple[Bench, PartTask]:
    """A decode that failed before its first part was done, which somebody may still be at."""
    pool = Interrupted(decode_part, LocalWorkers(1))
    pool.most = 0
    bench = Bench(store, pool, folder)
    with pytest.raises(Unavailable):
        await bench.decode(decode_id="operations/d1")
    pool.close()
    return bench, pool.tasks[0]


async def test_a_decode_that_died_goes_on_where_it_was(
    store: ObjectStore, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    await store_session(runs=[program.packets() * 5000] * 6)
    pool = Interrupted(decode_part, LocalWorkers(1))
    bench = Bench(store, pool, tmp_path)
    try:
        pool.most = 3
        with pytest.raises(Unavailable):
            await bench.decode(decode_id="operations/d1")
        assert [info.key async for info in store.list("tables/sessions/")] == []
        records = [info.key async for info in store.list("decodes/d1/") if info.key.endswith(".arrow")]
        assert 0 < len(records) <= 3
        pool.most, pool.parts, bench.progress = 1000, 0, []
        decoded = await bench.decode(decode_id="operations/d1")
        assert pool.parts == 6 - len(records)
        assert bench.progress[0][0] == len(records) * 5000 * len(program.packets())
        assert (decoded.instructions, decoded.calls) == (6 * 5000 * 12, 6 * 5000 * 4)
        assert len(await bench.rows("calls")) == 6 * 5000 * 4
        # What another recording left under this name is not taken for this one's.
        pool.most, pool.parts = 3, 0
        with pytest.raises(Unavailable):
            await bench.decode(decode_id="operations/d2")
        await store_session(runs=[program.packets()] * 6)
        pool.most = 1000
        assert (await bench.decode(decode_id="operations/d2")).instructions == 6 * 12
    finally:
        pool.close()
    files = [info.key async for info in store.list("tables/calls/") if "/part-" in info.key]
    assert len([key for key in files if "/part-d2-" in key]) == 1


async def test_what_a_decode_without_a_result_left_is_removed(
    store: ObjectStore, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    await store_session(runs=[program.packets() * 5000] * 3)
    pool = Interrupted(decode_part, LocalWorkers(1))
    pool.most = 2
    bench = Bench(store, pool, tmp_path)
    try:
        with pytest.raises(Unavailable):
            await bench.decode(decode_id="operations/d1")
        await bench.decoder.forget("s1", "operations/d1")
    finally:
        pool.close()
    assert [info.key async for info in store.list("decodes/")] == []
    assert [info.key async for info in store.list("tables/") if "/part-" in info.key] == []


async def test_a_part_that_is_stored_as_its_decode_ends_is_removed(
    store: ObjectStore, store_session: StoreSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session()
    bench, task = await begun(store, tmp_path)
    storing = part_decoder.stored_part

    async def ended_before(store: ObjectStore, part: WrittenPart, day: date, task: PartTask) -> TableFile:
        await bench.decoder.forget("s1", "operations/d1")
        return await storing(store, part, day, task)

    monkeypatch.setattr(part_decoder, "stored_part", ended_before)
    with pytest.raises(Aborted, match="over"):
        await asyncio.to_thread(decode_part, task)
    assert [info.key async for info in store.list("decodes/")] == []
    assert [info.key async for info in store.list("tables/") if "/part-" in info.key] == []


async def test_a_record_that_is_put_as_its_decode_ends_is_removed(
    store: ObjectStore, store_session: StoreSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session()
    bench, task = await begun(store, tmp_path)

    class EndedBefore(FolderStore):
        async def put_stream(self, key: str, data: AsyncIterable[bytes] | bytes) -> ObjectInfo:
            if key.endswith(".arrow"):
                await bench.decoder.forget("s1", "operations/d1")
            return await super().put_stream(key, data)

    monkeypatch.setattr(part_decoder, "_store", lambda _: EndedBefore(tmp_path / "store"))
    with pytest.raises(Aborted, match="over"):
        await asyncio.to_thread(decode_part, task)
    assert [info.key async for info in store.list("decodes/")] == []


async def test_a_decode_that_is_cancelled_as_it_begins_leaves_nothing(
    bench: Bench, store_session: StoreSession, store: ObjectStore, tmp_path: Path
) -> None:
    await store_session()
    root = tmp_path / "store"
    decode = asyncio.create_task(bench.decode(decode_id="operations/d1"))

    async def cancelled() -> None:
        decode.cancel()
        await asyncio.wait({decode})
        await bench.decoder.forget("s1", "operations/d1")

    # Whatever is put waits for the lock.
    with (root / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while not any((root / ".partial").iterdir()):
            await asyncio.sleep(0.01)
        end = asyncio.create_task(cancelled())
        await asyncio.sleep(0.2)
    await end
    while any((root / ".partial").iterdir()):
        await asyncio.sleep(0.01)
    assert [info.key async for info in store.list("decodes/")] == []


async def test_of_a_session_that_is_deleted_while_it_is_decoded_nothing_is_left(
    bench: Bench,
    store_session: StoreSession,
    store: ObjectStore,
    hold: Callable[[str], HeldObject],
    tidying: StoreTidying,
) -> None:
    decode_id = "operations/01a2122d0000-00000000"
    await store_session()
    await bench.decode()
    held = hold("raw/s1/segment-1.pt.zst")
    decode = asyncio.create_task(bench.decode(decode_id=decode_id))
    await held.reached()
    await store.delete("raw/s1/manifest.json")
    await bench.tables.delete_session("s1")
    held.let_go()
    await store.delete_prefix("raw/s1/")
    with pytest.raises(NotFound, match="s1"):
        await decode
    await bench.decoder.forget("s1", decode_id)
    assert {table: len(await bench.rows(table)) for table in SCHEMAS} == dict.fromkeys(SCHEMAS, 0)
    # Without the manifest nobody knows the day that its files are of: tidying finds them.
    await tidying.sweep()
    await tidying.sweep()
    assert [info.key async for info in store.list() if "s1" in info.key or "decodes/" in info.key] == []


async def test_a_decode_that_somebody_else_took_for_over_says_who_that_may_be(
    bench: Bench, store_session: StoreSession, store: ObjectStore, hold: Callable[[str], HeldObject]
) -> None:
    await store_session()
    held = hold("raw/s1/segment-1.pt.zst")
    decode = asyncio.create_task(bench.decode(decode_id="operations/d1"))
    await held.reached()
    await store.delete("decodes/d1/begun")
    held.let_go()
    with pytest.raises(Aborted, match=re.escape(f"decodes/d1/begun of the store {store.url} is gone")) as refused:
        await decode
    assert refused.value.reason == "DECODE_OVER" and "another mesh" in refused.value.help
