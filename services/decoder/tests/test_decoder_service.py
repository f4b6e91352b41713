"""The decoder as a process of the mesh, asked over gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import grpc.aio
import psutil
import pyarrow as pa
import pytest
from permille.api.decoder.v1 import decoder_pb2 as pb
from permille.api.decoder.v1 import decoder_pb2_grpc as rpc
from permille.api.operation.v1 import operation_pb2
from permille.decoder.domain.call_tree import CallNode
from permille.decoder.domain.exports import pprof
from permille.decoder.main import DecoderConfig, DecoderSettings, setup
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import wait_for
from permille.mesh.errors import PermilleError
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error
from permille.mesh.server import serve
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.tables import Tables

SESSION = "nodes/n/sessions/s1"
Stub: TypeAlias = "rpc.DecoderServiceAsyncStub"
StoreSession = Callable[..., Awaitable[dict[str, Any]]]
Hold = Callable[[str], Any]


@pytest.fixture
def store(mesh_config: MeshConfig) -> ObjectStore:
    return open_store(mesh_config.store_url)


@pytest.fixture
async def decoder(mesh_config: MeshConfig, etcd: Etcd) -> AsyncIterator[Stub]:
    async with running(mesh_config, etcd) as stub:
        yield stub


@asynccontextmanager
async def running(config: MeshConfig, etcd: Etcd) -> AsyncIterator[Stub]:
    server = asyncio.create_task(serve("decoder", config, setup))
    await wait_for(etcd, "decoder", timeout_s=60)
    channels = Channels(config, etcd)
    try:
        yield rpc.DecoderServiceStub(await channels.to("decoder"))
    finally:
        # gRPC's server does not outlive the loop, also of a test that fails.
        await channels.close()
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


async def decoded(stub: Stub, request_id: str = "r1", session: str = SESSION) -> operation_pb2.Operation:
    started = await stub.Decode(pb.DecodeRequest(request_id=request_id, session=session))
    waited = await stub.WaitOperation(operation_pb2.WaitOperationRequest(name=started.operation.name), timeout=180)
    assert waited.operation.done
    return waited.operation


async def query(stub: Stub, sql: str) -> list[dict[str, Any]]:
    parts = [part async for part in stub.Query(pb.QueryRequest(sql=sql))]
    return pa.ipc.open_stream(b"".join(part.arrow_ipc for part in parts)).read_all().to_pylist()


async def reason_of(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if isinstance(call, grpc.aio.UnaryStreamCall):
            async for _ in call:
                pass
        else:
            await call
    error = from_rpc_error(caught.value)
    assert isinstance(error, PermilleError)
    assert error.help, error
    return error.reason


async def test_decode_query_export_delete(decoder: Stub, store_session: StoreSession, store: ObjectStore) -> None:
    await store_session()
    operation = await decoded(decoder)
    result = pb.DecodeResult()
    assert operation.response.Unpack(result), operation.error
    assert (result.session, result.instructions, result.calls, result.functions) == (SESSION, 24, 8, 3)
    assert operation.progress.completed == operation.progress.total == result.raw_bytes

    top = await query(decoder, "SELECT name, self_instructions FROM functions ORDER BY self_instructions DESC LIMIT 1")
    assert top == [{"name": "inner", "self_instructions": 12}]

    exported = [part async for part in decoder.Export(pb.ExportRequest(session=SESSION, format=pb.FORMAT_FOLDED))]
    elsewhere = pb.ExportRequest(session=SESSION.replace("nodes/n/", "nodes/other/"), format=pb.FORMAT_FOLDED)
    assert await reason_of(decoder.Export(elsewhere)) == "SESSION_NOT_FOUND"
    assert exported[0].file_name == "s1.folded"
    assert b"_start;outer;inner " in b"".join(part.data for part in exported)

    there = [info.size_bytes async for info in store.list() if "s1" in info.key]
    deleted = await decoder.DeleteSession(pb.DeleteSessionRequest(name=SESSION))
    assert (deleted.deleted_objects, deleted.freed_bytes) == (len(there), sum(there))
    assert await query(decoder, "SELECT * FROM functions") == []
    left = [info.key async for info in store.list() if "s1" in info.key]
    assert left == []
    assert await reason_of(decoder.DeleteSession(pb.DeleteSessionRequest(name=SESSION))) == "SESSION_NOT_FOUND"


async def test_a_session_of_which_the_manifest_alone_is_left_is_deleted(
    decoder: Stub, store_session: StoreSession, store: ObjectStore
) -> None:
    await store_session()
    async for info in store.list():
        if "s1" in info.key and not info.key.endswith("manifest.json"):
            await store.delete(info.key)
    deleted = await decoder.DeleteSession(pb.DeleteSessionRequest(name=SESSION))
    assert deleted.deleted_objects == 1


async def test_answers_fit_what_a_client_takes_that_is_told_nothing(decoder: Stub, etcd: Etcd) -> None:
    endpoint = await wait_for(etcd, "decoder", timeout_s=60)
    async with grpc.aio.insecure_channel(endpoint.address) as channel:
        rows = await query(rpc.DecoderServiceStub(channel), "SELECT repeat('x', 1000) AS text FROM range(9000)")
    assert sum(len(row["text"]) for row in rows) == 9_000_000


async def test_a_client_that_does_not_read_keeps_no_other_from_its_answer(mesh_config: MeshConfig, etcd: Etcd) -> None:
    settings = DecoderSettings(queries_at_once=1, query_timeout_s=1)
    config = DecoderConfig(**{**dict(mesh_config), "decoder": settings})
    async with running(config, etcd) as stub:
        large = "SELECT repeat('x', 1000) FROM range(10000000)"
        unread = stub.Query(pb.QueryRequest(sql=large, max_rows=10_000_000))
        assert isinstance(await unread.read(), pb.QueryResponse)
        await asyncio.sleep(settings.query_timeout_s)
        assert await query(stub, "SELECT 1 AS one") == [{"one": 1}]

        async def the_rest() -> None:
            while await unread.read() is not grpc.aio.EOF:
                pass

        assert await reason_of(the_rest()) == "QUERY_TIMEOUT"


async def test_a_cancelled_decode_leaves_nothing(
    decoder: Stub, store_session: StoreSession, store: ObjectStore, program: Any, hold: Hold
) -> None:
    runs = [program.packets() * 5000] * 6
    await store_session(runs=runs)
    held = hold("raw/s1/segment-5.pt.zst")
    started = await decoder.Decode(pb.DecodeRequest(request_id="r1", session=SESSION))
    name = started.operation.name
    await held.reached()
    # Everything else is done, and told, while one segment takes its time.
    told = await told_until(decoder, name, 5 * len(runs[0]))
    assert told == sorted(told)
    assert [info.key async for info in store.list("tables/calls/") if "/part-" in info.key]
    await decoder.CancelOperation(operation_pb2.CancelOperationRequest(name=name))
    waited = await decoder.WaitOperation(operation_pb2.WaitOperationRequest(name=name), timeout=180)
    assert waited.operation.error.reason == "CANCELLED"
    assert 0 < waited.operation.progress.completed < waited.operation.progress.total
    # The worker that is still at it leaves nothing either.
    held.let_go()
    await decoded(decoder, "r2")
    rows = await query(decoder, "SELECT count(*) AS n FROM calls")
    assert rows == [{"n": 6 * 5000 * 4}]
    assert [info.key async for info in store.list("decodes/")] == []
    files = {info.key.rpartition("/")[2] async for info in store.list("tables/calls/") if "/part-" in info.key}
    (action,) = [info.key async for info in store.list("tables/calls/_delta_log/") if info.key.endswith("1.json")]
    committed = Path(urlsplit(store.url).path) / action
    assert {json.loads(line)["add"]["path"].rpartition("/")[2] for line in committed.open() if '"add"' in line} == files


async def test_a_client_that_goes_away_ends_its_export(
    decoder: Stub, store_session: StoreSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released, told = threading.Event(), threading.Event(), count()

    class EndlessTree:
        def stacks(self) -> Iterator[tuple[tuple[int, ...], CallNode]]:
            begun.set()
            while not released.wait(0.001):
                next(told)
                yield (0,), CallNode(0)

    await store_session()
    await decoded(decoder)
    monkeypatch.setattr(pprof, "call_tree", lambda _: EndlessTree())
    asking = decoder.Export(pb.ExportRequest(session=SESSION, format=pb.FORMAT_PPROF))
    reading = asyncio.create_task(reason_of(asking))
    assert await asyncio.to_thread(begun.wait, 60)
    asking.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    try:
        for _ in range(100):
            before = next(told)
            await asyncio.sleep(0.1)
            if next(told) == before + 1:
                return
        pytest.fail("the export goes on")
    finally:
        released.set()


async def test_the_most_urgent_of_those_that_wait_is_decoded_first(
    mesh_config: MeshConfig, etcd: Etcd, store_session: StoreSession, hold: Hold
) -> None:
    settings = DecoderSettings(decodes_at_once=1)
    config = DecoderConfig(**{**dict(mesh_config), "decoder": settings})
    for number in range(4):
        await store_session(f"s{number}")
    held = hold("raw/s0/segment-0.pt.zst")
    async with running(config, etcd) as stub:
        names = []
        for number, priority in enumerate([0, -3, 0, 7]):
            request = pb.DecodeRequest(session=f"nodes/n/sessions/s{number}", priority=priority)
            names.append((await stub.Decode(request)).operation.name)
            if number == 0:
                await held.reached()
        for name in names[1:]:
            await in_stage(stub, name, "WAITING")
        held.let_go()
        ended = []
        for name in names:
            waited = await stub.WaitOperation(operation_pb2.WaitOperationRequest(name=name), timeout=180)
            assert not waited.operation.HasField("error"), waited.operation.error
            ended.append(waited.operation.update_time.ToNanoseconds())
    assert sorted(range(4), key=lambda number: ended[number]) == [0, 3, 2, 1]


async def test_the_same_request_is_one_operation(decoder: Stub, store_session: StoreSession) -> None:
    await store_session()
    request = pb.DecodeRequest(request_id="r1", session=SESSION)
    answers = await asyncio.gather(*(decoder.Decode(request) for _ in range(5)))
    assert len({answer.operation.name for answer in answers}) == 1
    await decoded(decoder)
    assert len(await query(decoder, "SELECT * FROM calls")) == 8


async def test_a_session_that_is_not_there_fails_the_operation(decoder: Stub) -> None:
    operation = await decoded(decoder)
    assert (operation.error.reason, bool(operation.error.help)) == ("SESSION_NOT_FOUND", True)


async def test_wrong_wishes_are_refused(decoder: Stub) -> None:
    assert await reason_of(decoder.Decode(pb.DecodeRequest(session="s1"))) == "INVALID_NAME"
    assert await reason_of(decoder.Query(pb.QueryRequest(sql="COPY calls TO '/tmp/x'"))) == "BAD_QUERY"
    assert await reason_of(decoder.Export(pb.ExportRequest(session=SESSION))) == "EXPORT_FORMAT"
    unknown = pb.ExportRequest(session=SESSION, format=pb.FORMAT_FOLDED)
    assert await reason_of(decoder.Export(unknown)) == "SESSION_NOT_DECODED"
    assert await reason_of(decoder.DeleteSession(pb.DeleteSessionRequest(name="../x"))) == "INVALID_NAME"


async def test_an_uploaded_binary_is_used(
    decoder: Stub, store_session: StoreSession, store: ObjectStore, program: Any
) -> None:
    await store_session()
    # The recorder named it, but never stored it.
    await store.delete(f"binaries/{program.build_id}")
    await decoded(decoder)
    assert await query(decoder, "SELECT * FROM calls") == []

    async def pieces() -> AsyncIterator[pb.UploadBinaryRequest]:
        data = program.path.read_bytes()
        for offset in range(0, len(data), 1000):
            yield pb.UploadBinaryRequest(data=data[offset : offset + 1000])

    uploaded = await decoder.UploadBinary(pieces())
    assert (uploaded.name, uploaded.existed) == (f"binaries/{program.build_id}", False)
    assert (await decoder.UploadBinary(pieces())).existed
    await decoded(decoder, "r2")
    assert len(await query(decoder, "SELECT * FROM calls")) == 8


async def test_what_is_no_binary_is_refused(decoder: Stub) -> None:
    async def pieces(data: bytes) -> AsyncIterator[pb.UploadBinaryRequest]:
        yield pb.UploadBinaryRequest(data=data)

    assert await reason_of(decoder.UploadBinary(pieces(b"text"))) == "NOT_AN_ELF"
    assert await reason_of(decoder.UploadBinary(pieces(b""))) == "NOT_AN_ELF"


@pytest.mark.parametrize("beginnings", [[b"text"], [b"\x7f", b"", b"EL", b"text"]], ids=["at once", "by the byte"])
async def test_what_begins_as_no_binary_is_refused_before_it_has_come(decoder: Stub, beginnings: list[bytes]) -> None:
    async def endless() -> AsyncIterator[pb.UploadBinaryRequest]:
        for data in beginnings:
            yield pb.UploadBinaryRequest(data=data)
        await asyncio.Event().wait()

    assert await reason_of(decoder.UploadBinary(endless())) == "NOT_AN_ELF"


async def test_a_session_that_is_still_recorded_is_not_deleted(
    decoder: Stub, store_session: StoreSession, etcd: Etcd
) -> None:
    await store_session()
    await etcd.put(f"/permille/v1/{SESSION}", b'{"state": "RECORDING"}')
    assert await reason_of(decoder.DeleteSession(pb.DeleteSessionRequest(name=SESSION))) == "SESSION_BUSY"
    await etcd.put(f"/permille/v1/{SESSION}", b'{"state": "STORED"}')
    await decoder.DeleteSession(pb.DeleteSessionRequest(name=SESSION))
    assert await etcd.get(f"/permille/v1/{SESSION}") is None


@pytest.mark.parametrize("listed", [True, False])
async def test_by_the_name_of_another_node_nothing_is_decoded_or_deleted(
    decoder: Stub, store_session: StoreSession, store: ObjectStore, etcd: Etcd, listed: bool
) -> None:
    await store_session()
    other = SESSION.replace("nodes/n/", "nodes/other/")
    operation = await decoded(decoder, session=other)
    assert (operation.error.reason, operation.error.metadata["session"]) == ("SESSION_NOT_FOUND", SESSION)
    if listed:
        # While it is stored there is no manifest yet.
        await store.delete("raw/s1/manifest.json")
        await etcd.put(f"/permille/v1/{SESSION}", b'{"state": "STORING"}')
    before = [info.key async for info in store.list("raw/")]
    assert await reason_of(decoder.DeleteSession(pb.DeleteSessionRequest(name=other))) == "SESSION_NOT_FOUND"
    assert [info.key async for info in store.list("raw/")] == before


async def test_what_has_outlived_its_retention_is_deleted(
    mesh_config: MeshConfig, etcd: Etcd, store_session: StoreSession, store: ObjectStore
) -> None:
    await store_session()
    config = DecoderConfig(**mesh_config.model_dump(), decoder=DecoderSettings(expiry_interval_s=0.1))
    async with running(config, etcd) as decoder:
        await decoded(decoder)
        assert await query(decoder, "SELECT session_id FROM sessions")
        record = {"state": "STORED", "end_ns": time.time_ns(), "retention_s": 1}
        await etcd.put(f"/permille/v1/{SESSION}", json.dumps(record).encode())
        async with asyncio.timeout(60):
            while await etcd.get(f"/permille/v1/{SESSION}") is not None:
                await asyncio.sleep(0.05)
        assert not await query(decoder, "SELECT session_id FROM sessions")
        assert not [info.key async for info in store.list("raw/")]


async def test_killed_in_the_middle_the_decode_ends_and_doubles_nothing(  # noqa: PLR0917
    mesh_config: MeshConfig,
    etcd: Etcd,
    store_session: StoreSession,
    store: ObjectStore,
    program: Any,
    hold: Hold,
) -> None:
    runs = [program.packets() * 5000] * 4
    await store_session(runs=runs)
    held = hold("raw/s1/segment-3.pt.zst")
    async with killed_and_replaced(mesh_config, etcd) as decoder:
        name = (await decoder.stub.Decode(pb.DecodeRequest(request_id="r1", session=SESSION))).operation.name
        await held.reached()
        await told_until(decoder.stub, name, 3 * len(runs[0]))
        await decoder.kill()
        held.restore()
        await decoder.ended(name)
    assert await rows_of(store) == {"sessions": 1, "segments": 4, "functions": 3, "calls": 4 * 5000 * 4}
    assert [info.key async for info in store.list("decodes/")] == []
    scratch = mesh_config.state_dir / "decoder" / "scratch"
    assert list(scratch.iterdir()) == []


async def test_killed_between_two_commits_the_decode_ends_and_doubles_nothing(
    mesh_config: MeshConfig, etcd: Etcd, store_session: StoreSession, store: ObjectStore, hold: Hold
) -> None:
    await store_session()
    # Looked for when a table is opened: the commit of the table that comes last waits.
    held = hold("tables/sessions/_delta_log/_last_checkpoint")
    async with killed_and_replaced(mesh_config, etcd) as decoder:
        name = (await decoder.stub.Decode(pb.DecodeRequest(request_id="r1", session=SESSION))).operation.name
        tables = Tables(store)
        async with asyncio.timeout(120):
            for table in ("calls", "edges", "segments", "functions"):
                while not (await tables.dataset(table)).count_rows():
                    await asyncio.sleep(0.02)
        await decoder.kill()
        # Nobody takes what is there for a decoded session.
        assert [info.key async for info in store.list("tables/sessions/") if info.key.endswith(".json")] == []
        held.restore()
        await decoder.ended(name)
    assert await rows_of(store) == {"sessions": 1, "segments": 2, "functions": 3, "calls": 8}
    assert [info.key async for info in store.list("decodes/")] == []


class MortalDecoder:
    """A decoder in a process of its own, and another one when it was killed."""

    def __init__(self, config: MeshConfig, channels: Channels) -> None:
        self._config = config
        self._channels = channels
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, etcd: Etcd) -> None:
        self._process = await spawned(self._config)
        await wait_for(etcd, "decoder", timeout_s=60)
        self.stub = rpc.DecoderServiceStub(await self._channels.to("decoder"))

    async def kill(self) -> None:
        """Its workers end with it. Returns when the other one was started."""
        assert self._process is not None
        workers = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 60)
        assert not alive, "workers outlive their service"
        self._process = await spawned(self._config)

    async def ended(self, name: str) -> None:
        """The operation, well, by whichever decoder."""
        async with asyncio.timeout(120):
            while True:
                try:
                    stub = rpc.DecoderServiceStub(await self._channels.to("decoder"))
                    waited = await stub.WaitOperation(operation_pb2.WaitOperationRequest(name=name, timeout_ms=5000))
                    if waited.operation.done:
                        break
                except (grpc.aio.AioRpcError, PermilleError):
                    await asyncio.sleep(0.2)
        assert not waited.operation.HasField("error"), waited.operation.error

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


@asynccontextmanager
async def killed_and_replaced(config: MeshConfig, etcd: Etcd) -> AsyncIterator[MortalDecoder]:
    channels = Channels(config, etcd)
    decoder = MortalDecoder(config, channels)
    try:
        await decoder.start(etcd)
        yield decoder
    finally:
        await decoder.stop()
        await channels.close()


async def rows_of(store: ObjectStore) -> dict[str, int]:
    tables = Tables(store)
    return {name: (await tables.dataset(name)).count_rows() for name in ("sessions", "segments", "functions", "calls")}


async def told_until(stub: Stub, name: str, completed: int) -> list[int]:
    """What the operation told of its progress until so much was completed."""
    told = [0]
    async with asyncio.timeout(120):
        while told[-1] < completed:
            operation = (await stub.GetOperation(operation_pb2.GetOperationRequest(name=name))).operation
            told.append(operation.progress.completed)
            await asyncio.sleep(0.02)
    return told


async def in_stage(stub: Stub, name: str, stage: str) -> None:
    async with asyncio.timeout(60):
        while True:
            operation = (await stub.GetOperation(operation_pb2.GetOperationRequest(name=name))).operation
            if operation.progress.stage == stage:
                return
            await asyncio.sleep(0.02)


async def spawned(config: MeshConfig) -> asyncio.subprocess.Process:
    environment = {
        **os.environ,
        "PERMILLE_STATE_DIR": str(config.state_dir),
        "PERMILLE_ETCD": ",".join(config.etcd),
        "PERMILLE_LEASE_TTL_S": str(config.lease_ttl_s),
        "PERMILLE_METRICS": "off",
    }
    command = Path(sys.executable).parent / "permille-decoder"
    return await asyncio.create_subprocess_exec(str(command), env=environment)
