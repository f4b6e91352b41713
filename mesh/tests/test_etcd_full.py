"""An etcd whose database is full: what is refused, what is kept, and that the documented way out is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from permille.api.decoder.v1 import decoder_pb2
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import register, resolve, wait_for
from permille.mesh.election import Election
from permille.mesh.embedded_etcd import EmbeddedEtcd, etcd_binary
from permille.mesh.errors import ResourceExhausted
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease
from permille.mesh.operation_runner import Job, OperationRunner
from permille.mesh.operations import Operation, OperationStore, operation_error
from permille.mesh.server import ServerContext, serve

OPERATIONS_GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"
Request = decoder_pb2.DecodeRequest
Result = decoder_pb2.DecodeResult


@pytest.fixture
async def small_etcd(tmp_path: Path) -> AsyncIterator[Etcd]:
    """Its database may take 16 MiB."""
    server = EmbeddedEtcd(tmp_path / "small", durable=False, quota_bytes=16 << 20)
    client = Etcd([await server.start()])
    yield client
    await client.close()
    await server.stop()


async def fill(etcd: Etcd) -> tuple[int, ResourceExhausted]:
    """Writes a mebibyte again and again until etcd refuses; the last one written, and the refusal."""
    number = 0
    while True:
        try:
            await etcd.put("/fill", b"%08d" % (number + 1) * (1 << 17))
        except ResourceExhausted as error:
            return number, error
        number += 1


async def follow_the_guide(etcd: Etcd) -> None:
    """Runs what the guide tells to run, with this etcd's address."""
    _, _, section = OPERATIONS_GUIDE.read_text().partition("### When etcd is full")
    _, _, block = section.partition("```console")
    commands = [line.removeprefix("$ ") for line in block.partition("```")[0].strip().splitlines()]
    script = "\n".join(["set -eux", *commands]).replace("etcd-1:2379", etcd.endpoints[0])
    path = f"{etcd_binary().parent}:{os.environ['PATH']}"
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, env={**os.environ, "PATH": path})
    assert await shell.wait() == 0


async def test_a_full_etcd_refuses_with_the_way_out_keeps_everything_and_goes_on_after_it(small_etcd: Etcd) -> None:
    save_refused, finish_refused = asyncio.Event(), asyncio.Event()

    class Refused(OperationStore):
        async def save(self, name: str, checkpoint: bytes, *, since: int = 0) -> int:
            try:
                return await super().save(name, checkpoint, since=since)
            except ResourceExhausted:
                save_refused.set()
                raise

        async def finish(self, name: str, response: Message, *, since: int = 0) -> Operation:
            try:
                return await super().finish(name, response, since=since)
            except ResourceExhausted:
                finish_refused.set()
                raise

    lease = Lease(small_etcd, ttl_s=2)
    await lease.start()
    store = Refused(small_etcd, "decoder", lease=lease)
    ready = asyncio.Event()
    worked: list[str] = []

    async def work(job: Job[Request]) -> Result:
        worked.append(job.request.session)
        await ready.wait()
        if job.request.session == "goes on":
            await job.save(b"so far")
            await job.progress("DECODING", 1, 2)
        return Result(session=job.request.session)

    runner = OperationRunner(store, Request, work)
    running = asyncio.create_task(runner.run())
    begun = [await runner.start(Request(session=session), "") for session in ("ends", "goes on")]

    last, full = await fill(small_etcd)
    assert full.reason == "ETCD_FULL"
    assert full.retry_after_s
    for command in ("etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm"):
        assert command in full.help
    with pytest.raises(ResourceExhausted) as start:
        await runner.start(Request(session="begins"), "r")
    assert start.value.reason == "ETCD_FULL"
    kept = await small_etcd.get("/fill")
    assert kept is not None
    # etcd looks at its size once more while it applies a write: what it refuses there is written (its quotaApplierV3).
    assert kept.value in {b"%08d" % number * (1 << 17) for number in (last, last + 1)}
    ready.set()
    async with asyncio.timeout(120):
        await save_refused.wait()
        await finish_refused.wait()
    assert not any([(await store.get(operation.name)).done for operation in begun])

    await follow_the_guide(small_etcd)
    begun.append(await runner.start(Request(session="begins"), "r"))
    for operation in begun:
        ended = await store.wait(operation.name, 120)
        assert ended.done
        assert operation_error(ended) is None
    assert worked == ["ends", "goes on", "begins"]
    assert await small_etcd.get("/fill") == kept
    running.cancel()


async def test_a_service_that_starts_when_etcd_is_full_says_so_and_registers_when_there_is_room(
    small_etcd: Etcd, mesh_config: MeshConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    contexts: list[ServerContext] = []
    leads = asyncio.Event()

    async def setup(context: ServerContext) -> None:
        async def lead() -> None:
            await Election(context.etcd, context.lease, "operator", context.instance).won()
            leads.set()

        contexts.append(context)
        context.spawn(lead())

    # This one had its lease in time, and registers too late.
    earlier = Lease(small_etcd, ttl_s=2)
    await earlier.start()
    await fill(small_etcd)
    await register(earlier, "decoder", "d1", "127.0.0.1:9")

    config = mesh_config.model_copy(update={"etcd": small_etcd.endpoints, "lease_ttl_s": 2})
    service = asyncio.create_task(serve("allocator", config, setup, instance="a1"))
    said = ""
    while '"event": "ready"' not in said or "waiting until etcd has room" not in said:
        await asyncio.sleep(0.05)
        assert not service.done()
        said += capfd.readouterr().err
    for word in ("alarm NOSPACE", "etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm", "When etcd is full"):
        assert word in said
    assert not leads.is_set()
    assert [await resolve(small_etcd, name) for name in ("allocator", "decoder")] == [[], []]

    await follow_the_guide(small_etcd)
    for name in ("allocator", "decoder"):
        await wait_for(small_etcd, name, timeout_s=60)
    await leads.wait()
    contexts[0].end(0)
    assert await service == 0
    await earlier.close()
