"""Decoding on a Dask cluster of real processes that die, come back, or never come."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin
from permille.api.decoder.v1 import decoder_pb2 as pb
from permille.api.decoder.v1 import decoder_pb2_grpc as rpc
from permille.api.operation.v1 import operation_pb2
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_decoder import DecodedSession, SessionDecoder
from permille.decoder.domain.workers import WorkerDied
from permille.decoder.main import DecoderConfig, DecoderSettings, setup
from permille.decoder.service.dask_workers import ClusterTls, dask_workers
from permille.decoder.service.decode_work import DecodeWork
from permille.mesh import certs
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import wait_for
from permille.mesh.errors import Code, PermilleError, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease
from permille.mesh.operation_runner import Job
from permille.mesh.operations import OperationStore
from permille.mesh.server import serve
from permille.mesh.store import ObjectStore
from permille.mesh.tables import Tables

StoreSession = Callable[..., Awaitable[dict[str, Any]]]
BIN = Path(sys.executable).parent
NO_TLS = ClusterTls()
DIES = "__import__('os').kill(__import__('os').getpid(), 9)"
KILLS_ITS_PARENT = "__import__('os').kill(__import__('os').getppid(), 9)"


def documented(scheme: str) -> tuple[list[str], list[str]]:
    """The two commands of docs/operations.md that start a cluster: scheduler and workers."""
    text = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    commands = [shlex.split(line) for line in re.findall(r"^\$ (dask (?:scheduler|worker) .*)$", text, re.MULTILINE)]
    scheduler, worker = commands[:2] if scheme == "tcp" else commands[2:]
    assert (scheduler[1], worker[1]) == ("scheduler", "worker") and worker[2].startswith(scheme)
    return scheduler, worker


class Cluster:
    """A scheduler and workers, as the commands of docs/operations.md start them. `certificates`: where `dask/` is.

    `deaths`: of so many workers a task may be in the way before it is tried alone.
    """

    def __init__(self, folder: Path, certificates: Path | None = None, *, deaths: int = 4) -> None:
        self._folder = folder
        self._certificates = certificates
        self._environment = {
            **os.environ,
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(deaths - 1),
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.address = f"{'tls' if certificates else 'tcp'}://127.0.0.1:{self.port}"
        self._commands = documented(self.address[:3])
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        self._scheduler = self._run(self._commands[0], {"--port": str(self.port), "--host": "127.0.0.1"})

    def start_worker(self) -> None:
        changed = {"--local-directory": str(self._folder / secrets.token_hex(4)), "--nworkers": "1"}
        command = [self.address if "://" in word else word for word in self._commands[1]]
        more = {"--host": "127.0.0.1", "--death-timeout": "120"}
        self._workers.append(self._run([*command, "--no-dashboard"], changed | more))

    def kill_scheduler(self) -> None:
        assert self._scheduler is not None
        self._scheduler.kill()
        self._scheduler.wait()

    def kill_the_worker_that_reads(self, held: Any) -> None:
        """The process that works, not the nanny that starts it again."""
        held.reader(psutil.Process()).kill()

    def kill_the_worker_whose_child_reads(self, held: Any) -> None:
        """The worker of Dask around a process that has its task alone."""
        held.reader(psutil.Process()).parent().kill()

    def end_workers(self) -> None:
        """As whoever takes machines away does, and starts none again."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait()
        self._workers.clear()

    def stop(self) -> None:
        for process in [*self._workers, *([self._scheduler] if self._scheduler else [])]:
            for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
                child.kill()
            process.kill()
            process.wait()

    def _run(self, command: list[str], options: dict[str, str]) -> subprocess.Popen[bytes]:
        words = list(command)
        for option, value in options.items():
            if option in words:
                words[words.index(option) + 1] = value
            else:
                words += [option, value]
        log = (self._folder / f"{words[1]}-{secrets.token_hex(2)}.log").open("wb")
        return subprocess.Popen(
            [BIN / words[0], *words[1:]], stdout=log, stderr=log, env=self._environment, cwd=self._certificates
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker()
    yield cluster
    cluster.stop()


class Decoder:
    """A decoder on a cluster."""

    def __init__(self, store: ObjectStore, cluster: Cluster, tls: ClusterTls, folder: Path) -> None:
        self.store = store
        self.tables = Tables(store)
        self.pool: SegmentPool[PartTask, bytes] = SegmentPool(decode_part, dask_workers(cluster.address, tls))
        self.done_bytes = 0
        self.sessions = SessionDecoder(
            store, self.tables, self.pool, folder=folder, workers_folder="", debug_folder=folder
        )

    async def decode(self, decode_id: str = "d1") -> DecodedSession:
        async def progress(done: int, total: int) -> None:
            self.done_bytes = done

        async with asyncio.timeout(200):
            while True:
                try:
                    return await self.sessions.decode("s1", decode_id, progress)
                except Unavailable:
                    await asyncio.sleep(0.5)

    async def counts(self) -> dict[str, int]:
        return {
            table: (await self.tables.session(table, "s1")).count_rows()
            for table in ("calls", "segments", "functions", "losses", "sessions")
        }


@pytest.fixture
def decoder(store: ObjectStore, cluster: Cluster, tmp_path: Path) -> Iterator[Decoder]:
    decoder = Decoder(store, cluster, NO_TLS, tmp_path)
    yield decoder
    decoder.pool.close()


async def test_a_session_is_decoded_by_the_cluster(decoder: Decoder, store_session: StoreSession, program: Any) -> None:
    await store_session(runs=[program.packets()] * 40)
    decoded = await decoder.decode()
    assert (decoded.instructions, decoded.calls, decoded.lost_bytes) == (40 * 12, 40 * 4, 0)
    assert await decoder.counts() == {"calls": 160, "segments": 40, "functions": 3, "losses": 0, "sessions": 1}
    assert [info.key async for info in decoder.store.list("decodes/")] == []


@pytest.mark.parametrize("victim", ["worker", "scheduler"])
async def test_a_death_in_the_middle_loses_and_doubles_nothing(  # noqa: PLR0917
    decoder: Decoder,
    cluster: Cluster,
    store_session: StoreSession,
    program: Any,
    hold: Callable[[str], Any],
    victim: str,
) -> None:
    runs, times = 6, 5000
    await store_session(runs=[program.packets() * times] * runs)
    held = hold("raw/s1/segment-4.pt.zst")
    work = asyncio.create_task(decoder.decode())
    await held.reached()
    # Some parts are done, others are not; this one is being read.
    async with asyncio.timeout(120):
        while not decoder.done_bytes:
            assert not work.done(), work.result()
            await asyncio.sleep(0.01)
    held.restore()
    if victim == "worker":
        await asyncio.to_thread(cluster.kill_the_worker_that_reads, held)
    else:
        cluster.kill_scheduler()
        # Dask's workers end with their scheduler; whatever supervises them starts all of them again.
        cluster.start_scheduler()
        cluster.start_worker()
    decoded = await work
    assert (decoded.instructions, decoded.lost_bytes) == (runs * times * 12, 0)
    assert await decoder.counts() == {
        "calls": runs * times * 4,
        "segments": runs,
        "functions": 3,
        "losses": 0,
        "sessions": 1,
    }
    assert [info.key async for info in decoder.store.list("decodes/")] == []


async def test_workers_that_somebody_kills_again_and_again_cost_nothing(  # noqa: PLR0917
    store: ObjectStore,
    store_session: StoreSession,
    program: Any,
    hold: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("permille.decoder.domain.session_decoder._IN_DOUBT_S", (0.1,) * 3)
    await store_session(runs=[program.packets()])
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster", deaths=1)
    decoder = Decoder(store, cluster, NO_TLS, tmp_path)
    try:
        cluster.start_scheduler()
        for _ in range(2):
            cluster.start_worker()
        held = hold("raw/s1/segment-0.pt.zst")
        work = asyncio.create_task(decoder.decode())
        for kill in (cluster.kill_the_worker_that_reads, *[cluster.kill_the_worker_whose_child_reads] * 2):
            await held.reached()
            held.restore()
            first, held = held, hold("raw/s1/segment-0.pt.zst")
            await asyncio.to_thread(kill, first)
        await held.reached()
        held.let_go()
        decoded = await work
        assert (decoded.instructions, decoded.calls, decoded.lost_bytes) == (12, 4, 0)
    finally:
        decoder.pool.close()
        cluster.stop()


@pytest.mark.parametrize("alone", [False, True])
async def test_what_a_worker_cannot_do_is_told_with_its_name(
    decoder: Decoder, cluster: Cluster, store: ObjectStore, tmp_path: Path, *, alone: bool
) -> None:
    task = PartTask(store.url, "absent", "", "decodes/d1/", (0,), folder="", debug_folder=str(tmp_path))
    with pytest.raises(PermilleError) as error:
        await patiently(decoder.pool, task, alone=alone)
    assert error.value.reason == "SESSION_NOT_FOUND"
    worker, host = error.value.metadata["worker"], socket.gethostname()
    assert error.value.message.startswith(f"the Dask worker {worker} on {host}: the session absent is not in")
    assert worker.startswith("tcp://127.0.0.1:") and worker != cluster.address


async def test_work_whose_workers_have_all_left_does_not_wait_for_ever(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(cluster.address, NO_TLS))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    try:
        await patiently(pool, "0")
        task = f"(__import__('pathlib').Path('{tmp_path}/0').touch(), open('{gate}').read())"
        waiting = [asyncio.create_task(pool.run(task)) for _ in range(3)]
        await until(lambda: begun(tmp_path) == ["0"])
        monkeypatch.setattr("permille.decoder.service.dask_workers._WORKERS_S", 1.0)
        await asyncio.to_thread(cluster.end_workers)
        async with asyncio.timeout(120):
            left = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(error, Unavailable) and error.reason for error in left] == ["DASK_NO_WORKERS"] * 3
        monkeypatch.undo()
        cluster.start_worker()
        assert await patiently(pool, "1 + 1") == 2
    finally:
        pool.close()


async def test_a_cluster_with_tls_works_for_whom_it_knows(
    store: ObjectStore, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    await store_session(runs=[program.packets()] * 6)
    known, stranger = (certificates(tmp_path / name) for name in ("known", "stranger"))
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, tmp_path / "known")
    decoder = Decoder(store, cluster, known, tmp_path)
    plain = f"tcp://{cluster.address.partition('://')[2]}"
    try:
        cluster.start_scheduler()
        cluster.start_worker()
        decoded = await decoder.decode()
        assert (decoded.instructions, decoded.calls, decoded.lost_bytes) == (6 * 12, 6 * 4, 0)
        for address, tls in ((cluster.address, stranger), (plain, NO_TLS)):
            pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(address, tls))
            with pytest.raises(PermilleError) as error:
                await pool.run("1")
            assert error.value.reason == "DASK_UNAVAILABLE"
            pool.close()
        # The scheduler is there all the same.
        assert (await decoder.decode("d2")).calls == 6 * 4
    finally:
        decoder.pool.close()
        cluster.stop()


async def test_while_the_scheduler_is_away_the_operation_says_so_and_goes_on_when_it_is_back(
    store: ObjectStore, store_session: StoreSession, program: Any, etcd: Etcd, tmp_path: Path
) -> None:
    await store_session(runs=[program.packets()] * 3)
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    decoder = Decoder(store, cluster, NO_TLS, tmp_path)
    lease = Lease(etcd, ttl_s=5)
    await lease.start()
    operations = OperationStore(etcd, "decoder", lease=lease)
    request = pb.DecodeRequest(session="nodes/n/sessions/s1")
    operation, _ = await operations.create(request, "r1")
    work = asyncio.create_task(
        DecodeWork(decoder.sessions, most_at_once=1, patience_s=150)(Job(operations, operation, request))
    )
    try:
        async with asyncio.timeout(60):
            while not (told := (await operations.get(operation.name)).progress).waiting:
                await asyncio.sleep(0.1)
        assert f"the Dask scheduler at {cluster.address} cannot be reached" in told.waiting
        assert re.search(r"\(since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\): start it with `dask scheduler`", told.waiting)
        assert (told.stage, told.completed, told.total) == ("DECODING", 0, 3 * len(program.packets()))
        cluster.start_scheduler()
        cluster.start_worker()
        assert (await work).calls == 3 * 4
        told = (await operations.get(operation.name)).progress
        assert (told.waiting, told.completed) == ("", told.total)
    finally:
        work.cancel()
        decoder.pool.close()
        cluster.stop()


def certificates(folder: Path) -> ClusterTls:
    """As the commands of docs/operations.md make them, in `dask/` below the folder."""
    authority = certs.create_authority(folder / "dask")
    issued = certs.issue_service(folder / "dask", ["decoder"], node="cluster")
    return ClusterTls(authority.certificate, issued.certificate, issued.key)


async def patiently(pool: SegmentPool[Any, Any], task: object, *, alone: bool = False) -> object:
    """As a decode does: a cluster that is still starting, or all of whose workers are, is away for now."""
    async with asyncio.timeout(200):
        while True:
            try:
                return await pool.run(task, alone=alone)
            except Unavailable:
                await asyncio.sleep(0.5)


async def test_a_task_that_kills_its_workers_costs_itself_only(cluster: Cluster) -> None:
    pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(cluster.address, NO_TLS))
    try:
        tasks = [DIES if number == 3 else f"{number}" for number in range(8)]
        results = await asyncio.gather(*(patiently(pool, task) for task in tasks), return_exceptions=True)
        assert isinstance(results.pop(3), WorkerDied)
        assert results == [0, 1, 2, 4, 5, 6, 7]
        assert await patiently(pool, "1 + 1", alone=True) == 2
        with pytest.raises(ZeroDivisionError):
            await patiently(pool, "1 / 0")
    finally:
        pool.close()


async def test_a_task_that_ends_the_workers_that_run_it_alone_costs_itself_only(cluster: Cluster) -> None:
    pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(cluster.address, NO_TLS))
    try:
        with pytest.raises(WorkerDied):
            await patiently(pool, KILLS_ITS_PARENT, alone=True)
        assert await patiently(pool, "1 + 1") == 2
    finally:
        pool.close()


async def test_a_scheduler_that_talks_of_others_work_first_is_asked_again(cluster: Cluster) -> None:
    # It goes to the scheduler by value.
    class Talkative(SchedulerPlugin):
        """News for all clients, as of work that another decoder has cancelled, while the next one connects."""

        def add_client(self, scheduler: Any, client: str) -> None:
            scheduler.remove_plugin(name="talkative")
            asyncio.get_running_loop().call_soon(scheduler.report, {"op": "cancelled-keys", "keys": []})

    pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(cluster.address, NO_TLS))
    try:
        async with client_of(cluster.address) as client:
            await client.register_plugin(Talkative(), name="talkative")
        with pytest.raises(Unavailable) as error:
            await pool.run("1")
        assert error.value.reason == "DASK_UNAVAILABLE"
        assert await patiently(pool, "1 + 1") == 2
    finally:
        pool.close()


async def test_the_service_decodes_on_the_cluster_that_its_settings_name(  # noqa: PLR0917
    mesh_config: MeshConfig,
    etcd: Etcd,
    cluster: Cluster,
    store: ObjectStore,
    program: Any,
    store_session: StoreSession,
) -> None:
    await store_session(runs=[program.packets()] * 5)
    settings = DecoderSettings(executor="dask", dask_scheduler=cluster.address)
    config = DecoderConfig(**{**dict(mesh_config), "decoder": settings, "store": store.url})
    server = asyncio.create_task(serve("decoder", config, setup))
    channels = Channels(config, etcd)
    try:
        await wait_for(etcd, "decoder", timeout_s=60)
        stub: Any = rpc.DecoderServiceStub(await channels.to("decoder"))
        started = await stub.Decode(pb.DecodeRequest(session="nodes/n/sessions/s1"))
        request = operation_pb2.WaitOperationRequest(name=started.operation.name)
        operation = (await stub.WaitOperation(request, timeout=100)).operation
        result = pb.DecodeResult()
        assert operation.response.Unpack(result), operation.error
        assert (result.instructions, result.calls, result.lost_bytes) == (5 * 12, 5 * 4, 0)
    finally:
        await channels.close()
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
    assert (await Tables(store).dataset("calls")).count_rows() == 20
    # Whatever the workers kept is in their own folders.
    assert not (config.state_dir / "decoder" / "binaries").exists()


async def test_cancelled_work_leaves_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(cluster.address, NO_TLS))
    try:
        await patiently(pool, "0")
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        task = f"(__import__('pathlib').Path('{tmp_path}/{{}}').touch(), open('{gate}').read())"
        tasks = [asyncio.create_task(pool.run(task.format(number))) for number in range(20)]
        await until(lambda: len(begun(tmp_path)) == 2)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with client_of(cluster.address) as client:
            while await client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
                await asyncio.sleep(0.02)
        # Those that ran end now; those that waited never begin.
        with gate.open("w"):
            gate.unlink()
            gate.touch()
        assert await pool.run("1 + 1") == 2
        assert len(begun(tmp_path)) == 2
    finally:
        pool.close()


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[Any]:
    """Another client of the cluster, when its scheduler is there and tells nothing else first."""
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(100):
            while True:
                try:
                    client = Client(address, asynchronous=True, set_as_default=False)  # type: ignore[no-untyped-call]
                    await stack.enter_async_context(client)
                    break
                except (OSError, AssertionError):
                    await asyncio.sleep(0.2)
        yield client


def begun(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.isdecimal()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_without_a_scheduler_or_workers_it_says_which_command_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "lonely"
    folder.mkdir()
    lonely = Cluster(folder)
    pool: SegmentPool[str, object] = SegmentPool(eval, dask_workers(lonely.address, NO_TLS))
    try:
        with pytest.raises(PermilleError) as error:
            await pool.run("1")
        assert (error.value.code, error.value.reason) == (Code.UNAVAILABLE, "DASK_UNAVAILABLE")
        assert "dask scheduler" in error.value.help
        lonely.start_scheduler()
        async with asyncio.timeout(60):
            while error.value.reason == "DASK_UNAVAILABLE":
                with pytest.raises(PermilleError) as error:
                    await pool.run("1")
        assert error.value.reason == "DASK_NO_WORKERS"
        assert f"dask worker {lonely.address}" in error.value.help
    finally:
        pool.close()
        lonely.stop()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "DASK_ADDRESS"),
        ("tls://10.1.2.3:8786", "DASK_TLS_FILE"),
        ("127.0.0.1:8786", "DASK_ADDRESS"),
        ("tcp://:8786", "DASK_ADDRESS"),
        ("tcp://127.0.0.1:", "DASK_ADDRESS"),
        ("tcp://127.0.0.1:8786/", "DASK_ADDRESS"),
        ("tls://127.0.0.1:99999", "DASK_ADDRESS"),
        ("tcp://10.1.2.3:8786", "TLS_REQUIRED"),
    ],
)
def test_addresses_that_cannot_be(address: str, reason: str) -> None:
    with pytest.raises(PermilleError) as error:
        dask_workers(address, NO_TLS)
    assert error.value.reason == reason
    assert error.value.help
