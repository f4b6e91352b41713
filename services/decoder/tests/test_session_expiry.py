"""What has outlived its retention goes for good: its recording, its rows, its entry in the list."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.service.session_deletion import SessionDeletion
from permille.decoder.service.session_expiry import SessionExpiry
from permille.mesh.errors import Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease
from permille.mesh.operation_names import part_request_id
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

DAY_S = 24 * 3600
# Not before anything is stored.
END_NS = time.time_ns() + DAY_S * 1_000_000_000
StoreSession = Callable[..., Awaitable[dict[str, Any]]]


class Clock:
    """So long after the end of the sessions."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> int:
        return END_NS + round(self.s * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def operations(etcd: Etcd) -> OperationStore:
    return OperationStore(etcd, "decoder", lease=Lease(etcd, ttl_s=60))


@pytest.fixture
async def requests(etcd: Etcd, clock: Clock) -> OperationStore:
    """Coverage's operations."""
    return OperationStore(etcd, "coverage", lease=Lease(etcd, ttl_s=60), clock_ns=clock)


NewExpiry = Callable[[int], SessionExpiry]


@pytest.fixture
def new_expiry(
    store: ObjectStore, etcd: Etcd, operations: OperationStore, requests: OperationStore, clock: Clock
) -> NewExpiry:
    """By how long recordings are kept where nothing else was said."""
    deletion = SessionDeletion(store, Tables(store), etcd, operations)
    return lambda retention_s: SessionExpiry(store, etcd, deletion, requests, retention_s=retention_s, now_ns=clock)


@pytest.fixture
def expiry(new_expiry: NewExpiry) -> SessionExpiry:
    return new_expiry(30 * DAY_S)


def name_of(session_id: str) -> str:
    return f"nodes/n/sessions/{session_id}"


async def listed(etcd: Etcd, session_id: str, **record: object) -> None:
    """As its controller lists it."""
    known = {"state": "STORED", "create_ns": END_NS - 1, "end_ns": END_NS, **record}
    await etcd.put(f"/permille/v1/{name_of(session_id)}", json.dumps(known).encode())


async def test_a_recording_goes_with_its_rows_when_its_retention_is_over(  # noqa: PLR0917
    expiry: SessionExpiry,
    clock: Clock,
    etcd: Etcd,
    store: ObjectStore,
    store_session: StoreSession,
    new_row: Callable[..., dict[str, Any]],
) -> None:
    tables = Tables(store)
    for session_id, retention_s in (("day", DAY_S), ("week", 7 * DAY_S), ("month", 0)):
        await store_session(session_id)
        await listed(etcd, session_id, retention_s=retention_s)
        row = new_row("sessions", session_id=session_id, session=name_of(session_id))
        await tables.replace_session("sessions", session_id, [pa.RecordBatch.from_pylist([row], SCHEMAS["sessions"])])

    async def left() -> set[str]:
        raw = {info.key.split("/")[1] async for info in store.list("raw/")}
        keys = {entry.key.rpartition("/")[2] for entry in await etcd.prefix("/permille/v1/nodes/")}
        rows = set((await tables.dataset("sessions")).to_table()["session_id"].to_pylist())
        assert raw == keys == rows
        return raw

    clock.s = DAY_S - 1
    assert await expiry.sweep() == []
    clock.s = DAY_S
    assert await expiry.sweep() == [name_of("day")] and await left() == {"week", "month"}
    clock.s = 30 * DAY_S - 1
    assert await expiry.sweep() == [name_of("week")] and await left() == {"month"}
    clock.s = 30 * DAY_S
    assert await expiry.sweep() == [name_of("month")]
    assert await expiry.sweep() == []


async def test_what_is_not_over_or_in_use_stays(
    expiry: SessionExpiry, clock: Clock, etcd: Etcd, operations: OperationStore, store_session: StoreSession
) -> None:
    clock.s = 365 * DAY_S
    await store_session("decoding")
    await listed(etcd, "recording", state="RECORDING", end_ns=0)
    await listed(etcd, "storing", state="STORING")
    await listed(etcd, "decoding")
    await operations.create(decoder_pb2.DecodeRequest(session=name_of("decoding")), "r1")
    # What was imported was recorded long ago, and is kept from now on.
    await listed(etcd, "imported", create_ns=clock())
    # One that failed before it ended is as old as its beginning.
    await listed(etcd, "failed", state="FAILED", end_ns=0)
    await store_session("failed", node="n")
    assert await expiry.sweep() == [name_of("failed")]
    assert len(await etcd.prefix("/permille/v1/nodes/")) == 4


async def test_of_recordings_that_etcd_does_not_list_the_store_tells_the_age(
    expiry: SessionExpiry, clock: Clock, store: ObjectStore, store_session: StoreSession
) -> None:
    await store_session("short", node="n", end_ns=END_NS, retention_s=DAY_S)
    await store_session("long", node="n", end_ns=END_NS)
    await store.put_stream("raw/damaged/manifest.json", b"{")
    clock.s = DAY_S
    assert await expiry.sweep() == [name_of("short")]
    clock.s = 30 * DAY_S
    assert await expiry.sweep() == [name_of("long")]
    assert [info.key async for info in store.list("raw/")] == ["raw/damaged/manifest.json"]


@pytest.mark.parametrize("known_to", ["etcd", "store"])
async def test_an_end_in_the_future_is_by_a_clock_that_was_wrong(
    expiry: SessionExpiry, clock: Clock, etcd: Etcd, store_session: StoreSession, known_to: str
) -> None:
    await store_session("s1", node="n", end_ns=END_NS + 365 * DAY_S * 1_000_000_000)
    if known_to == "etcd":
        await listed(etcd, "s1", end_ns=END_NS + 365 * DAY_S * 1_000_000_000)
    clock.s = 29 * DAY_S
    assert await expiry.sweep() == []
    clock.s = 31 * DAY_S
    assert await expiry.sweep() == [name_of("s1")]


async def test_a_deletion_that_the_store_interrupts_is_ended_by_the_next_sweep(
    expiry: SessionExpiry,
    store: ObjectStore,
    clock: Clock,
    store_session: StoreSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store_session("s1", node="n", end_ns=END_NS)
    clock.s = 31 * DAY_S
    delete_prefix = type(store).delete_prefix

    async def away(*_: object) -> None:
        raise Unavailable("away", reason="STORE_UNAVAILABLE", help="try again")

    monkeypatch.setattr(type(store), "delete_prefix", away)
    with pytest.raises(Unavailable):
        await expiry.sweep()
    monkeypatch.setattr(type(store), "delete_prefix", delete_prefix)
    assert await expiry.sweep() == [name_of("s1")]
    assert [info.key async for info in store.list("raw/s1/")] == []
    assert await expiry.sweep() == []


@pytest.mark.parametrize("known_to", ["etcd", "store"])
async def test_it_counts_from_when_the_request_is_over_however_long_decoding_had_to_wait(  # noqa: PLR0917
    expiry: SessionExpiry,
    clock: Clock,
    etcd: Etcd,
    requests: OperationStore,
    store_session: StoreSession,
    known_to: str,
) -> None:
    operation, _ = await requests.create(coverage_pb2.StartCoverageRequest(), "r1")
    known = {"retention_s": 60, "request_id": part_request_id(operation.name, 0)}
    await store_session(end_ns=END_NS, **known)
    if known_to == "etcd":
        await listed(etcd, "s1", **known)
    clock.s = 3600
    assert await expiry.sweep() == []
    await requests.finish(operation.name, coverage_pb2.CoverageResult())
    clock.s = 3600 + 59
    assert await expiry.sweep() == []
    clock.s = 3600 + 60
    assert await expiry.sweep() == [name_of("s1")]


async def test_of_a_request_that_nobody_knows_any_more_it_counts_from_the_recording(
    expiry: SessionExpiry, clock: Clock, etcd: Etcd, store_session: StoreSession
) -> None:
    for session_id, request_id in (("forgotten", part_request_id("operations/0123456789ab-01234567", 3)), ("own", "r")):
        await store_session(session_id)
        await listed(etcd, session_id, retention_s=60, request_id=request_id)
    clock.s = 59
    assert await expiry.sweep() == []
    clock.s = 60
    assert set(await expiry.sweep()) == {name_of("forgotten"), name_of("own")}


async def test_for_ever_is_zero(new_expiry: NewExpiry, etcd: Etcd, clock: Clock, store_session: StoreSession) -> None:
    expiry = new_expiry(0)
    await store_session("s1", end_ns=END_NS)
    clock.s = 1000 * 365 * DAY_S
    assert await expiry.sweep() == []
    await listed(etcd, "s1", retention_s=60)
    assert await expiry.sweep() == [name_of("s1")]
