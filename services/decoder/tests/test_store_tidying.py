"""What nothing leads to any more goes from the store; what anybody may still read or write does not."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.service.store_tidying import StoreTidying
from permille.mesh.errors import NotFound
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectStore
from permille.mesh.tables import Tables

from .decode_bench import Bench, StoreSession


async def keys(store: ObjectStore) -> set[str]:
    return {info.key async for info in store.list()}


async def test_files_that_another_decode_has_replaced_go_when_two_sweeps_have_found_them(
    bench: Bench, store_session: StoreSession, tidying: StoreTidying
) -> None:
    await store_session()
    await store_session("other")
    await bench.decode("other")
    await bench.decode(decode_id="d1")
    await bench.decode(decode_id="d2")
    rows = await bench.rows("calls"), await bench.rows("calls", "other")
    replaced = {key for key in await keys(bench.store) if "/part-d1-" in key}
    assert {key.split("/")[1] for key in replaced} == {
        "calls", "edges", "accesses", "functions", "segments", "sessions"
    }  # fmt: skip
    before = await keys(bench.store)
    assert await tidying.sweep() == 0
    assert await keys(bench.store) == before
    assert await tidying.sweep() == len(replaced)
    assert await keys(bench.store) == before - replaced
    assert (await bench.rows("calls"), await bench.rows("calls", "other")) == rows
    assert await tidying.sweep() == 0


async def test_what_a_decode_left_that_could_not_remove_it_goes_and_what_goes_on_stays(
    bench: Bench, store_session: StoreSession, operations: OperationStore, tidying: StoreTidying
) -> None:
    await store_session()
    await bench.decode()
    wanted = await keys(bench.store)
    running, failed = [
        (await operations.create(decoder_pb2.DecodeRequest(session="nodes/n/sessions/s1"), name))[0].name
        for name in ("running", "failed")
    ]
    await operations.fail(failed, NotFound("gone", reason="GONE"))
    left: dict[str, set[str]] = {}
    for identity in (running.split("/")[1], failed.split("/")[1], "01a2122d0000-00000000"):
        left[identity] = {
            f"decodes/{identity}/begun",
            f"decodes/{identity}/part-0-1.arrow",
            f"tables/calls/day=2027-01-15/session_id=s1/part-{identity}-0000000000000000.parquet",
        }
        for key in left[identity]:
            await bench.store.put_stream(key, b"")
    await bench.store.put_stream("decodes/what is this", b"")
    await tidying.sweep()
    await tidying.sweep()
    assert await keys(bench.store) == wanted | left[running.split("/")[1]] | {"decodes/what is this"}


async def test_the_rows_that_name_files_are_read_once_for_all_sessions(
    bench: Bench, store_session: StoreSession, operations: OperationStore
) -> None:
    class Counted(Tables):
        opened = 0

        async def dataset(self, table: str) -> Any:
            self.opened += table == "sessions"
            return await super().dataset(table)

    for session_id in ("s1", "s2", "s3"):
        await store_session(session_id)
        await bench.decode(session_id)
        await bench.decode(session_id)
    tables = Counted(bench.store)
    await StoreTidying(bench.store, tables, operations).sweep()
    assert tables.opened == 1


async def test_what_a_killed_put_left_goes_after_a_day(
    bench: Bench, store_session: StoreSession, tidying: StoreTidying, tmp_path: Path
) -> None:
    await store_session()
    old, new = (tmp_path / "store" / ".partial" / name for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half of it")
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    await tidying.sweep()
    assert (old.exists(), new.exists()) == (False, True)


async def test_half_of_an_upload_goes_after_a_day_and_what_a_manifest_leads_to_stays(
    bench: Bench, tidying: StoreTidying, tmp_path: Path
) -> None:
    async def put(key: str, content: bytes = b"", *, hours: int = 25) -> str:
        await bench.store.put_stream(key, content)
        old = time.time() - hours * 3600
        os.utime(tmp_path / "store" / key, (old, old))
        return key

    file = "0123456789abcdef/segment-0.pt.zst"
    manifest = await put("raw/whole/manifest.json", json.dumps({"segments": [{"key": f"raw/whole/{file}"}]}).encode())
    damaged = await put("raw/damaged/manifest.json")
    (tmp_path / "store" / damaged).write_bytes(b"{}")
    stay = {manifest, await put(f"raw/whole/{file}"), damaged, await put(f"raw/damaged/{file}")}
    # An upload that may go on, and a session that a controller is still recording.
    stay |= {await put(f"raw/new/{file}", hours=23), await put("raw/recording/segment-0.pt.zst")}
    halves = {await put(f"raw/half/{file}"), await put("raw/whole/00000000deadbeef/maps.json")}
    assert await keys(bench.store) == stay | halves
    assert await tidying.sweep() == 0
    assert await tidying.sweep() == 2
    assert await keys(bench.store) == stay
