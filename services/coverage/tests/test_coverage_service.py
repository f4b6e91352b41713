"""CoverageService as its own process, on a real etcd and real gRPC.

The controller and the decoder behind it are small servicers of the same API in this test, served by the mesh's own
bootstrap, so that each can be made slow, broken or absent at will; the real ones meet it in the whole-mesh tests.
"""

# ruff: noqa: N802 - the methods are named as gRPC names them

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import grpc
import pyarrow as pa
import pytest
from permille.api.controller.v1 import controller_pb2, controller_pb2_grpc
from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.api.decoder.v1 import decoder_pb2, decoder_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.rates import Observation
from permille.coverage.service.rate_store import RateStore
from permille.mesh import certs, discovery
from permille.mesh.auth import INTERNAL, Role
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import (
    Cancelled,
    Code,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermilleError,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
)
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error
from permille.mesh.operation_runner import Job, OperationRunner
from permille.mesh.operation_service import OperationMethods
from permille.mesh.operations import operation_error
from permille.mesh.server import ServerContext, serve
from permille.mesh.table_schemas import SCHEMAS

Session = controller_pb2.Session
Operation = operation_pb2.Operation
_Reply = TypeVar("_Reply")
RAW_BYTES = 5 << 20


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    """Sessions that record until `go_on` is set, as a real node's go on while its controller restarts."""

    def __init__(self, node: str, zone: str = "") -> None:
        self.node = node
        self.zone = zone
        self.processes = {11: "redis-server", 12: "redis-server", 13: "gzip"}
        self.others = {99: "nginx"}
        self.sessions: dict[str, Session] = {}
        self.by_request: dict[str, str] = {}
        self.starts = 0
        self.most_at_once = 0
        self.groups: list[controller_pb2.Group] = []
        self.stops: list[str] = []
        self.changed = asyncio.Condition()
        self.go_on = asyncio.Event()
        self.fail_with: tuple[str, str, str] | None = None
        self.ends_after_plan = 0
        self.plans = 0
        self.held_plan = 0
        self.plan_on = asyncio.Event()

    async def GetNode(self, request: controller_pb2.GetNodeRequest, context: Any) -> controller_pb2.GetNodeResponse:
        self.plans += 1
        if self.plans == self.held_plan:
            await self.plan_on.wait()
        node = controller_pb2.Node(name=f"nodes/{self.node}", zone=self.zone, trace_budget_bytes=1 << 30)
        for pid, name in self.processes.items():
            node.processes.add(pid=pid, name=name)
        for pid, name in self.others.items():
            if pid in request.pids or name == request.process_name:
                node.other_processes.add(pid=pid, name=name)
        if request.cgroup:
            node.group.CopyFrom(controller_pb2.GroupOnNode(pids=self.processes, found=request.cgroup))
        self.processes.pop(self.ends_after_plan, None)
        return controller_pb2.GetNodeResponse(node=node)

    async def StartSession(
        self, request: controller_pb2.StartSessionRequest, context: Any
    ) -> controller_pb2.StartSessionResponse:
        known = self.by_request.get(request.request_id)
        if known is None:
            for pid in request.pids:
                if pid not in self.processes:
                    raise NotFound(f"no process {pid}", reason="NO_SUCH_PROCESS", metadata={"pid": str(pid)})
            self.starts += 1
            self.groups.append(request.group)
            known = f"nodes/{self.node}/sessions/{secrets.token_hex(4)}"
            self.by_request[request.request_id] = known
            session = Session(
                name=known,
                state=Session.STATE_RECORDING,
                pids=request.pids,
                period_ms=request.period_ms,
                purpose=request.purpose,
                backend=controller_pb2.BACKEND_VPT,
                target_name=self.processes[request.pids[0]],
            )
            session.start_time.GetCurrentTime()
            self.sessions[known] = session
            recording = sum(one.state == Session.STATE_RECORDING for one in self.sessions.values())
            self.most_at_once = max(self.most_at_once, recording)
            self._task = asyncio.create_task(self._run(session))
        return controller_pb2.StartSessionResponse(session=self.sessions[known])

    async def StopSession(
        self, request: controller_pb2.StopSessionRequest, context: Any
    ) -> controller_pb2.StopSessionResponse:
        self.stops.append(request.name)
        self.go_on.set()
        return controller_pb2.StopSessionResponse(session=self.sessions[request.name])

    async def GetSession(
        self, request: controller_pb2.GetSessionRequest, context: Any
    ) -> controller_pb2.GetSessionResponse:
        return controller_pb2.GetSessionResponse(session=self.sessions[request.name])

    async def WatchSession(
        self, request: controller_pb2.WatchSessionRequest, context: Any
    ) -> AsyncIterator[controller_pb2.WatchSessionResponse]:
        while True:
            session = self.sessions[request.name]
            yield controller_pb2.WatchSessionResponse(session=session)
            if session.state in (Session.STATE_STORED, Session.STATE_FAILED):
                return
            async with self.changed:
                await self.changed.wait()

    async def _run(self, session: Session) -> None:
        await self.go_on.wait()
        session.end_time.GetCurrentTime()
        session.raw_bytes = RAW_BYTES
        await self._become(session, Session.STATE_STORING)
        session.stored_bytes = 1 << 20
        if self.fail_with is not None:
            session.error_reason, session.error_message, session.error_help = self.fail_with
        await self._become(session, Session.STATE_FAILED if self.fail_with else Session.STATE_STORED)

    async def _become(self, session: Session, state: Session.State.ValueType) -> None:
        session.state = state
        async with self.changed:
            self.changed.notify_all()


class Decoder:
    """Decodes that go on until `go_on` is set; operations are the mesh's own."""

    def __init__(self) -> None:
        self.decoded: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.fail_with: PermilleError | None = None
        self.tables = DecodedTables()
        # What the n-th decoded session ran.
        self.ran: Callable[[int], dict[str, Iterable[int]]] | None = None

    async def work(self, job: Job[decoder_pb2.DecodeRequest]) -> decoder_pb2.DecodeResult:
        self.decoded.append(job.request.session)
        await job.progress("DECODING", 1, 3, "segments")
        await self.go_on.wait()
        if self.fail_with is not None:
            raise self.fail_with
        if self.ran is not None:
            self.tables.add(job.request.session, self.ran(len(self.decoded)))
        return decoder_pb2.DecodeResult(session=job.request.session, raw_bytes=RAW_BYTES, decode_ms=1500)


class DecodedTables:
    """The decoder's tables: one thread in which `main` calls functions, each begun in one of ten windows."""

    def __init__(self) -> None:
        self.database = duckdb.connect(":memory:")
        self.queries = 0
        for table, schema in SCHEMAS.items():
            self.database.register("empty", schema.empty_table())
            self.database.execute(f"CREATE TABLE {table} AS SELECT * FROM empty")

    def add(
        self, session: str, called: dict[str, Iterable[int]], build_id: str = "ab", target: str = "redis-server"
    ) -> None:
        """A session in which main called these, each once in each of its windows."""
        session_id, begin = session.rpartition("/")[2], 1_000_000_000
        known: dict[str, Any] = {"session_id": session_id, "day": date(2026, 1, 1)}
        self._insert("sessions", known | {"session": session, "target": target, "start_ns": begin, "lost_bytes": 0,
                     "end_ns": begin + 100_000_000, "period_ms": 100, "raw_bytes": RAW_BYTES})  # fmt: skip
        self._insert("segments", known | {"segment": 0, "first_ns": begin, "last_ns": begin + 10**8, "decode_ms": 100})
        for name, windows in {"main": range(10), **called}.items():
            number = zlib.crc32(name.encode()) >> 1
            self._insert("functions", known | {"function": number, "name": name, "module": "/bin/s", "calls": 1,
                         "build_id": build_id, "address": number, "self_instructions": 10,
                         "total_instructions": 20})  # fmt: skip
            for window in windows:
                self._insert("calls", known | {"segment": 0, "call": number * 10 + window, "function": number,
                             "parent": -1 if name == "main" else (zlib.crc32(b"main") >> 1) * 10,
                             "name": name, "start_ns": begin + window * 10_000_000})  # fmt: skip

    def _insert(self, table: str, row: dict[str, Any]) -> None:
        self.database.register("row", pa.Table.from_pylist([row], schema=SCHEMAS[table]))
        self.database.execute(f"INSERT INTO {table} SELECT * FROM row")


class DecoderService(OperationMethods, decoder_pb2_grpc.DecoderServiceServicer):
    def __init__(
        self, context: ServerContext, runner: OperationRunner[decoder_pb2.DecodeRequest], tables: DecodedTables
    ) -> None:
        super().__init__(context.operations)
        self._runner = runner
        self._tables = tables

    async def Query(self, request: decoder_pb2.QueryRequest, context: Any) -> AsyncIterator[decoder_pb2.QueryResponse]:
        self._tables.queries += 1
        found: Any = self._tables.database.sql(request.sql).to_arrow_table()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
        yield decoder_pb2.QueryResponse(arrow_ipc=sink.getvalue().to_pybytes())

    async def Decode(self, request: decoder_pb2.DecodeRequest, context: Any) -> decoder_pb2.DecodeResponse:
        return decoder_pb2.DecodeResponse(operation=await self._runner.start(request, request.request_id))


@asynccontextmanager
async def serving(
    service: str, config: MeshConfig, setup: Callable[[ServerContext], Awaitable[None]], instance: str
) -> AsyncIterator[ServerContext]:
    contexts: list[ServerContext] = []

    async def remember(context: ServerContext) -> None:
        contexts.append(context)
        await setup(context)

    task = asyncio.create_task(serve(service, config, remember, instance=instance))
    client = Etcd(config.etcd)
    await discovery.wait_for(client, service, instance=instance, timeout_s=60)
    await client.close()
    try:
        yield contexts[0]
    finally:
        contexts[0].end(0)
        assert await task == 0


@asynccontextmanager
async def controller_serving(config: MeshConfig, controller: Controller) -> AsyncIterator[ServerContext]:
    async def setup(context: ServerContext) -> None:
        descriptor = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"]
        add = controller_pb2_grpc.add_ControllerServiceServicer_to_server
        context.add(add, controller, descriptor, {method.name: INTERNAL for method in descriptor.methods})

    async with serving("controller", config, setup, controller.node) as context:
        yield context


@asynccontextmanager
async def decoder_serving(config: MeshConfig, decoder: Decoder) -> AsyncIterator[ServerContext]:
    async def setup(context: ServerContext) -> None:
        descriptor = decoder_pb2.DESCRIPTOR.services_by_name["DecoderService"]
        add = decoder_pb2_grpc.add_DecoderServiceServicer_to_server
        runner = OperationRunner(context.operations, decoder_pb2.DecodeRequest, decoder.work)
        methods = {method.name: INTERNAL for method in descriptor.methods}
        servicer = DecoderService(context, runner, decoder.tables)  # type: ignore[abstract]
        context.add(add, servicer, descriptor, methods)
        context.spawn(runner.run())

    async with serving("decoder", config, setup, f"d-{secrets.token_hex(2)}") as context:
        yield context


class Coverage:
    """The service under test as a process, and calls to it."""

    def __init__(self, config: MeshConfig, etcd: Etcd, log: Path, *settings: str) -> None:
        self._config = config
        self._etcd = etcd
        self._log = log
        self._settings = settings
        self.channels = Channels(config, etcd)
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        before = {endpoint.instance for endpoint in await discovery.resolve(self._etcd, "coverage")}
        flags = ["--etcd", ",".join(self._config.etcd), "--lease-ttl-s", "2", "--node", "n1", "--metrics", "off"]
        flags += ["--drain-s", "2", "--coverage-patience-s", "30", "--state-dir", str(self._config.state_dir)]
        for key in ("tls_ca", "tls_cert", "tls_key"):
            if (file := getattr(self._config, key)) is not None:
                flags += [f"--{key.replace('_', '-')}", str(file)]
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "permille.coverage.main", *flags, *self._settings, stderr=log
            )
        async for state in self._etcd.observe_prefix("/permille/v1/services/coverage/"):
            if {key.rpartition("/")[2] for key in state} - before:
                return

    async def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def stall(self) -> None:
        """It does nothing until `go_on`, and knows nothing of that."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.terminate()
        return await self.process.wait()

    async def plan(self, **target: Any) -> coverage_pb2.Plan:
        request = coverage_pb2.PlanCoverageRequest(coverage=wish(**target))
        return (await self._call("PlanCoverage", request, coverage_pb2.PlanCoverageResponse)).plan

    async def begin(self, request_id: str = "", **target: Any) -> Operation:
        request = coverage_pb2.StartCoverageRequest(request_id=request_id, coverage=wish(**target))
        return (await self._call("StartCoverage", request, coverage_pb2.StartCoverageResponse)).operation

    async def wait(self, name: str) -> Operation:
        """The finished operation; a replica that dies while we wait is no reason to give up."""
        request = operation_pb2.WaitOperationRequest(name=name, timeout_ms=5000)
        while True:
            with suppress(Unavailable):
                reply = await self._call("WaitOperation", request, operation_pb2.WaitOperationResponse)
                if reply.operation.done:
                    return reply.operation
            await asyncio.sleep(0.05)

    async def until(self, name: str, stage: str) -> Operation:
        while True:
            with suppress(Unavailable):
                reply = await self._call(
                    "GetOperation",
                    operation_pb2.GetOperationRequest(name=name),
                    operation_pb2.GetOperationResponse,
                )
                if reply.operation.progress.stage == stage or reply.operation.done:
                    return reply.operation
            await asyncio.sleep(0.02)

    async def operations(self) -> list[Operation]:
        """All that there are, by pages of one."""
        request, found = operation_pb2.ListOperationsRequest(page_size=1), list[Operation]()
        while True:
            answer = await self._call("ListOperations", request, operation_pb2.ListOperationsResponse)
            found += answer.operations
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    async def cancel(self, name: str) -> Operation:
        request = operation_pb2.CancelOperationRequest(name=name)
        return (await self._call("CancelOperation", request, operation_pb2.CancelOperationResponse)).operation

    async def _call(self, method: str, request: Any, reply: type[_Reply]) -> _Reply:
        stub = coverage_pb2_grpc.CoverageServiceStub(await self.channels.to("coverage"))
        try:
            answer = await getattr(stub, method)(request, timeout=20)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        assert isinstance(answer, reply)
        return answer


def wish(
    *,
    pids: tuple[int, ...] = (),
    name: str = "",
    cgroup: str = "",
    node: str = "",
    period_ms: int = 100,
    namespace: str = "",
) -> coverage_pb2.CoverageRequest:
    target = coverage_pb2.Target(node=node, pids=pids, process_name=name, cgroup=cgroup)
    return coverage_pb2.CoverageRequest(
        target=target, purpose=coverage_pb2.PURPOSE_ON_DEMAND, period_ms=period_ms, namespace=namespace
    )


def result_of(operation: Operation) -> coverage_pb2.CoverageResult:
    assert operation_error(operation) is None, operation.error
    result = coverage_pb2.CoverageResult()
    assert operation.response.Unpack(result)
    return result


@pytest.fixture
async def controller(mesh_config: MeshConfig) -> AsyncIterator[Controller]:
    node = Controller("n1")  # type: ignore[abstract]
    async with controller_serving(mesh_config, node):
        yield node


@pytest.fixture
async def decoder(mesh_config: MeshConfig) -> AsyncIterator[Decoder]:
    decoding = Decoder()
    async with decoder_serving(mesh_config, decoding):
        yield decoding


@pytest.fixture
async def coverage(mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path) -> AsyncIterator[Coverage]:
    service = Coverage(mesh_config, etcd, tmp_path / "coverage.log")
    await service.start()
    yield service
    await service.channels.close()
    await service.stop()


@pytest.fixture
async def another(mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path) -> AsyncIterator[Coverage]:
    """A second replica, not started yet."""
    service = Coverage(mesh_config, etcd, tmp_path / "another.log")
    yield service
    await service.channels.close()
    await service.stop()


async def test_a_controller_is_told_of_which_group_the_processes_are(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    for target in ({"cgroup": "/web.slice"}, {"pids": (13,)}):
        result_of(await coverage.wait((await coverage.begin(**target)).name))
    assert controller.groups == [controller_pb2.Group(cgroup="/web.slice"), controller_pb2.Group()]


async def test_a_target_is_recorded_stored_and_decoded(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.go_on.clear()
    operation = await coverage.begin("r1", pids=(13,))
    assert (await coverage.until(operation.name, "RECORDING")).progress.total == 100
    controller.go_on.set()
    decoding = await coverage.until(operation.name, "DECODING")
    assert not decoding.done
    decoder.go_on.set()
    result = result_of(await coverage.wait(operation.name))
    (session,) = controller.sessions.values()
    assert list(result.sessions) == [session.name]
    assert decoder.decoded == [session.name]
    assert (session.purpose, session.period_ms, list(session.pids)) == ("ON_DEMAND", 100, [13])
    assert [list(node.pids) for node in result.plan.nodes] == [[13]]


async def test_all_processes_of_a_name_are_recorded_together(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    operation = await coverage.begin(name="redis-server")
    assert [list(node.pids) for node in result_of(await coverage.wait(operation.name)).plan.nodes] == [[11, 12]]


async def test_a_profile_is_spread_over_the_zones_that_controllers_tell_or_the_settings_do(
    coverage: Coverage, mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    told = Coverage(mesh_config, etcd, tmp_path / "told.log", "--coverage-zones", '{"n2": "west", "n3": "east"}')
    sample = coverage_pb2.PlanCoverageRequest(
        coverage=coverage_pb2.CoverageRequest(
            target=coverage_pb2.Target(process_name="gzip"), purpose=coverage_pb2.PURPOSE_PROFILING, priority=20
        )
    )

    async def recorded(service: Coverage) -> list[tuple[str, str]]:
        made = (await service._call("PlanCoverage", sample, coverage_pb2.PlanCoverageResponse)).plan
        return [(choice.node, choice.zone) for choice in made.choices if choice.chosen]

    async with AsyncExitStack() as nodes:
        for node, zone in (("n1", "east"), ("n2", "east"), ("n3", "west")):
            controller = Controller(node, zone)  # type: ignore[abstract]
            await nodes.enter_async_context(controller_serving(mesh_config, controller))
        assert await recorded(coverage) == [("nodes/n1", "east"), ("nodes/n3", "west")]
        await coverage.stop()
        await told.start()
        assert await recorded(told) == [("nodes/n1", "east"), ("nodes/n2", "west")]
        await told.stop()
        await told.channels.close()


async def test_a_plan_does_nothing_and_learns_from_what_was_done(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    first = await coverage.plan(pids=(13,))
    assert (first.measured_sessions, controller.starts) == (0, 0)
    assert first.expected_bytes > 0
    operation = await coverage.begin(pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    controller.go_on.set()
    await coverage.wait(operation.name)
    assert (await coverage.plan(pids=(13,))).measured_sessions == 1


async def known_as_light(etcd: Etcd, name: str) -> None:
    """A program that writes a megabyte a second: none that a node has one session of at a time."""
    await RateStore(etcd).learn("vpt", name, Observation(1, 1000, 1 << 20, 0, 600))


async def test_fifty_starts_at_once_all_come_to_their_end(
    coverage: Coverage, controller: Controller, decoder: Decoder, etcd: Etcd
) -> None:
    await known_as_light(etcd, "worker")
    controller.processes = dict.fromkeys(range(1000, 1050), "worker")
    controller.go_on.set()
    begun = await asyncio.gather(*(coverage.begin(f"r{pid}", pids=(pid,)) for pid in controller.processes))
    results = [result_of(operation) for operation in await asyncio.gather(*(coverage.wait(o.name) for o in begun))]
    assert len({session for result in results for session in result.sessions}) == 50
    assert (controller.starts, len(decoder.decoded)) == (50, 50)


@asynccontextmanager
async def limited(config: MeshConfig, etcd: Etcd, folder: Path, *settings: str) -> AsyncIterator[Coverage]:
    """Two replicas with these settings, and calls that go to one or the other."""
    first, second = (Coverage(config, etcd, folder / f"{name}.log", *settings) for name in "ab")
    for replica in (first, second):
        await replica.start()
    try:
        yield first
    finally:
        for replica in (first, second):
            await replica.channels.close()
            await replica.stop()


async def test_a_quota_holds_over_all_that_is_unfinished_whichever_replica_began_it(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 28), "worker")
    quotas = ("--coverage-quotas", '{"default": {"cores": 3}}')
    async with limited(mesh_config, etcd, tmp_path, *quotas) as coverage:
        starts = (coverage.begin(f"r{pid}", pids=(pid,)) for pid in controller.processes)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        begun = [answer for answer in answers if isinstance(answer, Operation)]
        refused = [answer for answer in answers if isinstance(answer, ResourceExhausted)]
        assert (len(begun), len(refused)) == (3, 5)
        assert {error.reason for error in refused} == {"QUOTA_IN_USE"}
        assert refused[0].retry_after_s == 5.0
        with pytest.raises(ResourceExhausted, match="of which other requests take 3"):
            await coverage.plan(pids=(20,))
        controller.go_on.set()
        for operation in begun:
            result_of(await coverage.wait(operation.name))
        assert len((await coverage.plan(name="worker")).nodes[0].pids) == 3


async def test_heavy_sessions_of_one_node_are_recorded_one_after_the_other_whichever_replica_began_them(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 26), "worker")
    controller.go_on.set()
    async with limited(mesh_config, etcd, tmp_path) as coverage:
        begun = await asyncio.gather(*(coverage.begin(f"r{pid}", pids=(pid,)) for pid in controller.processes))
        for operation in begun:
            result_of(await coverage.wait(operation.name))
    assert (controller.starts, controller.most_at_once) == (6, 1)


async def test_who_was_named_waits_for_the_node_and_a_profile_is_told_to_come_again(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.go_on.clear()
    first = await coverage.begin(pids=(11,))
    await coverage.until(first.name, "RECORDING")
    waiting, cancelled = await coverage.begin(pids=(12,)), await coverage.begin(pids=(13,))
    for operation in (waiting, cancelled):
        assert not (await coverage.until(operation.name, "WAITING")).done
    (choice,) = (await coverage.plan(pids=(12,))).choices
    assert choice.reason == "the target means it; it begins when the heavy session of n1 has ended"
    await coverage.cancel(cancelled.name)
    assert isinstance(operation_error(await coverage.wait(cancelled.name)), Cancelled)
    profile = coverage_pb2.StartCoverageRequest(coverage=profile_of("gzip", limit=0))
    with pytest.raises(ResourceExhausted, match="n1 has a heavy session of another request") as failure:
        await coverage._call("StartCoverage", profile, coverage_pb2.StartCoverageResponse)
    assert (failure.value.reason, failure.value.retry_after_s) == ("QUOTA_IN_USE", 5.0)
    # The node is free when the recordings have ended, though they are still being decoded.
    controller.go_on.set()
    await coverage.until(waiting.name, "DECODING")
    operation = (await coverage._call("StartCoverage", profile, coverage_pb2.StartCoverageResponse)).operation
    decoder.go_on.set()
    for one in (first, waiting, operation):
        result_of(await coverage.wait(one.name))
    assert (controller.starts, controller.most_at_once) == (3, 1)


async def test_a_killed_coverage_keeps_the_node_to_its_recording(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    first = await coverage.begin(pids=(11,))
    await coverage.until(first.name, "RECORDING")
    second = await coverage.begin(pids=(12,))
    await coverage.kill()
    await coverage.start()
    assert not (await coverage.until(second.name, "WAITING")).done
    controller.go_on.set()
    for operation in (first, second):
        result_of(await coverage.wait(operation.name))
    assert (controller.starts, controller.most_at_once) == (2, 1)


async def test_no_invented_namespace_has_more_than_the_cluster(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    await known_as_light(etcd, "worker")
    controller.processes = dict.fromkeys(range(20, 26), "worker")
    async with limited(mesh_config, etcd, tmp_path, "--coverage-cluster-cores", "2") as coverage:
        starts = (coverage.begin(pids=(pid,), namespace=f"made-up-{pid}") for pid in controller.processes)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        assert sum(isinstance(answer, Operation) for answer in answers) == 2
        refused = [answer for answer in answers if isinstance(answer, ResourceExhausted)]
        assert {error.reason for error in refused} == {"QUOTA_IN_USE"}
        assert "the quota of the cluster is 2 traced cores" in refused[0].message


async def test_a_caller_has_so_many_unfinished_requests_and_a_repetition_is_none(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    callers = ("--coverage-callers", '{"127.0.0.1": {"requests": 1}}')
    async with limited(mesh_config, etcd, tmp_path, *callers) as coverage:
        operation = await coverage.begin("r1", pids=(11,))
        assert operation.caller == "127.0.0.1"
        assert (await coverage.begin("r1", pids=(11,))).name == operation.name
        with pytest.raises(ResourceExhausted) as failure:
            await coverage.begin("r2", pids=(12,))
        assert (failure.value.reason, failure.value.metadata["requests"]) == ("CALLER_REQUESTS", "1")
        assert failure.value.retry_after_s
        controller.go_on.set()
        result_of(await coverage.wait(operation.name))
        result_of(await coverage.wait((await coverage.begin("r2", pids=(12,))).name))


async def test_one_call_too_many_is_told_when_to_come_again_and_following_is_not_counted(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller
) -> None:
    coverage = Coverage(
        mesh_config, etcd, tmp_path / "a.log", "--coverage-callers", '{"default": {"calls_per_minute": 1}}'
    )
    await coverage.start()
    try:
        operation = await coverage.begin(pids=(11,))
        with pytest.raises(ResourceExhausted) as failure:
            # Whoever needs a minute for two calls is not limited.
            while True:
                await coverage.plan(pids=(12,))
        assert failure.value.reason == "CALL_RATE"
        assert failure.value.retry_after_s is not None
        assert 0 < failure.value.retry_after_s <= 60
        for _ in range(3):
            await coverage.until(operation.name, "RECORDING")
        await coverage.cancel(operation.name)
        assert isinstance(operation_error(await coverage.wait(operation.name)), Cancelled)
    finally:
        await coverage.channels.close()
        await coverage.stop()


async def test_with_tls_operators_start_other_systems_end_their_own_and_viewers_look(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    folder = tmp_path / "certs"
    certs.create_authority(folder)
    certs.issue_service(folder, ["coverage", "controller", "decoder"], node="n1")
    for role in (Role.OPERATOR, Role.VIEWER, Role.EXTERNAL):
        certs.issue_user(folder, role.value, roles=[role])

    def secured(name: str) -> MeshConfig:
        files = {"tls_ca": folder / "ca.crt", "tls_cert": folder / f"{name}.crt", "tls_key": folder / f"{name}.key"}
        return mesh_config.model_copy(update=files)

    node, decoder = Controller("n1"), Decoder()  # type: ignore[abstract]
    node.go_on.set()
    callers = ("--coverage-callers", '{"external": {"namespaces": ["shop"]}}')
    service = Coverage(secured("n1"), etcd, tmp_path / "coverage.log", *callers)
    async with controller_serving(secured("n1"), node), decoder_serving(secured("n1"), decoder):
        await service.start()
        operator, viewer, external = (
            Coverage(secured(name), etcd, tmp_path / "no.log") for name in ("operator", "viewer", "external")
        )
        operation = await operator.begin(pids=(13,))
        result_of(await viewer.wait(operation.name))
        assert (await viewer.plan(pids=(13,))).expected_bytes > 0
        with pytest.raises(PermissionDenied, match="needs the role operator"):
            await viewer.begin(pids=(13,))
        # What is done stays as it is, whoever asks for its end.
        with pytest.raises(PermissionDenied, match="operator started it"):
            await external.cancel(operation.name)
        # It asks for its own namespace, and sees what it has started.
        for refused in (external.begin(pids=(13,)), external.plan(pids=(13,), namespace="bank")):
            with pytest.raises(PermissionDenied, match="only for shop") as denied:
                await refused
            assert denied.value.reason == "NAMESPACE_NOT_ALLOWED"
        for look in (external.wait(operation.name), external.until(operation.name, "")):
            with pytest.raises(PermissionDenied, match="may not see"):
                await look
        own = await external.begin(pids=(13,), namespace="shop")
        assert own.caller == "external"
        assert [one.name for one in await external.operations()] == [own.name]
        assert [one.name for one in await viewer.operations()] == [own.name, operation.name]
        assert (await external.cancel(own.name)).name == (await operator.cancel(own.name)).name
        assert await service.stop() == 0
    for client in (service, operator, viewer, external):
        await client.channels.close()


async def test_a_repeated_start_finds_its_operation_even_when_the_target_is_gone(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    operations = await asyncio.gather(*(coverage.begin("same", pids=(13,)) for _ in range(10)))
    assert len({operation.name for operation in operations}) == 1
    await coverage.wait(operations[0].name)
    del controller.processes[13]
    assert (await coverage.begin("same", pids=(13,))).name == operations[0].name
    assert (controller.starts, len(decoder.decoded)) == (1, 1)
    with pytest.raises(InvalidArgument, match="used before for another request"):
        await coverage.begin("same", pids=(11,))


async def test_a_start_that_is_overtaken_by_its_repetition_finds_its_operation(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    controller.held_plan = 1
    slow = asyncio.create_task(coverage.begin("same", pids=(13,)))
    while controller.plans == 0:
        await asyncio.sleep(0.01)
    quick = await coverage.begin("same", pids=(13,))
    await coverage.wait(quick.name)
    del controller.processes[13]
    controller.plan_on.set()
    assert (await slow).name == quick.name
    assert (controller.starts, len(decoder.decoded)) == (1, 1)


@pytest.mark.parametrize("stage", ["RECORDING", "DECODING"])
async def test_a_killed_coverage_goes_on_where_it_was_and_doubles_nothing(
    coverage: Coverage, controller: Controller, decoder: Decoder, stage: str
) -> None:
    decoder.go_on.clear()
    if stage == "DECODING":
        controller.go_on.set()
    operation = await coverage.begin("r1", pids=(13,))
    assert not (await coverage.until(operation.name, stage)).done
    await coverage.kill()
    controller.go_on.set()
    decoder.go_on.set()
    await coverage.start()
    result = result_of(await coverage.wait(operation.name))
    assert (controller.starts, len(decoder.decoded), len(result.sessions)) == (1, 1, 1)


async def test_a_second_replica_takes_over_at_once_from_one_that_drains(
    coverage: Coverage, controller: Controller, decoder: Decoder, another: Coverage
) -> None:
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    await another.start()
    assert await coverage.stop() == 0
    controller.go_on.set()
    result_of(await another.wait(operation.name))
    assert controller.starts == 1


async def test_a_controller_that_is_away_for_a_while_is_waited_for(
    coverage: Coverage, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    node = Controller("n1")  # type: ignore[abstract]
    async with controller_serving(mesh_config, node):
        operation = await coverage.begin("r1", pids=(13,))
        await coverage.until(operation.name, "RECORDING")
    node.go_on.set()
    async with controller_serving(mesh_config, node):
        result_of(await coverage.wait(operation.name))
    assert node.starts == 1


async def test_a_decoder_that_dies_is_waited_for_and_decodes_once(
    coverage: Coverage, controller: Controller, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    first, second = Decoder(), Decoder()
    first.go_on.clear()
    async with decoder_serving(mesh_config, first):
        operation = await coverage.begin("r1", pids=(13,))
        await coverage.until(operation.name, "DECODING")
        while not first.decoded:
            await asyncio.sleep(0.02)
    async with decoder_serving(mesh_config, second):
        result_of(await coverage.wait(operation.name))
    assert first.decoded == second.decoded
    assert len(second.decoded) == 1


async def test_an_etcd_that_dies_loses_no_operation(
    coverage: Coverage, controller: Controller, decoder: Decoder, etcd_server: EmbeddedEtcd
) -> None:
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    assert etcd_server.process is not None
    etcd_server.process.kill()
    await etcd_server.wait()
    with pytest.raises(Unavailable) as caught:
        await coverage.begin("r2", pids=(11,))
    assert caught.value.reason == "ETCD_UNAVAILABLE"
    controller.go_on.set()
    await asyncio.sleep(3)
    await etcd_server.start()
    result_of(await coverage.wait(operation.name))
    assert (controller.starts, len(decoder.decoded)) == (1, 1)


async def test_a_cancel_while_recording_stops_the_session_and_keeps_what_it_has(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    await coverage.cancel(operation.name)
    error = operation_error(await coverage.wait(operation.name))
    (session,) = controller.sessions.values()
    assert isinstance(error, Cancelled)
    assert error.metadata == {"sessions": session.name}
    assert controller.stops == [session.name]
    assert session.state == Session.STATE_STORED
    assert decoder.decoded == []


async def test_a_cancel_while_decoding_names_what_is_kept(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.go_on.clear()
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "DECODING")
    await coverage.cancel(operation.name)
    error = operation_error(await coverage.wait(operation.name))
    assert isinstance(error, Cancelled)
    assert error.metadata["sessions"] == next(iter(controller.sessions))


async def test_a_session_that_fails_fails_the_operation_with_its_own_words(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    controller.fail_with = ("STORE_FULL", "the store is full", "delete sessions")
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,))).name))
    assert error is not None
    assert (error.reason, error.help) == ("STORE_FULL", "delete sessions")
    assert "the store is full" in error.message


async def test_a_decode_that_fails_fails_the_operation_with_its_own_words(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.fail_with = ResourceExhausted("no room for tables", reason="STORE_FULL", help="delete sessions")
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,))).name))
    assert isinstance(error, ResourceExhausted)
    assert error.metadata["session"] == next(iter(controller.sessions))


async def test_a_node_that_fails_is_told_and_the_others_sessions_are_the_result(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    other = Controller("n2")  # type: ignore[abstract]
    other.go_on.set()
    other.fail_with = ("DISK_FULL", "the disk of n2 is full", "free some")
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    result = result_of(operation)
    assert list(result.sessions) == list(controller.sessions)
    assert decoder.decoded == list(controller.sessions)
    (failure,) = result.failures
    assert (failure.node, failure.session) == ("nodes/n2", next(iter(other.sessions)))
    assert (failure.reason, failure.help) == ("DISK_FULL", "free some")
    assert "the disk of n2 is full" in failure.message


async def test_a_node_that_is_gone_before_it_begins_is_told_and_stops_nobody(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    other = Controller("n2")  # type: ignore[abstract]

    async def gone(request: Any, context: Any) -> controller_pb2.StartSessionResponse:
        raise Unavailable("n2 is going down", reason="DRAINING")

    other.StartSession = gone  # type: ignore[method-assign]
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    result = result_of(operation)
    assert list(result.sessions) == list(controller.sessions)
    assert [(failure.node, failure.session) for failure in result.failures] == [("nodes/n2", "")]
    assert controller.stops == []


async def test_when_one_node_refuses_to_begin_the_others_are_stopped(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    other = Controller("n2")  # type: ignore[abstract]

    async def refuses(request: Any, context: Any) -> controller_pb2.StartSessionResponse:
        raise FailedPrecondition("n2 has no room", reason="SHARED_MEMORY_FULL", help="enlarge /dev/shm")

    other.StartSession = refuses  # type: ignore[method-assign]
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    error = operation_error(operation)
    assert error is not None
    assert error.reason == "SHARED_MEMORY_FULL"
    assert controller.stops == list(controller.sessions)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ({"pids": (5,)}, NotFound("no process with pid 5", reason="", help="permille run")),
        ({"pids": (99,)}, FailedPrecondition("was not started ready", reason="", help="permille run -- CMD")),
        ({"name": "redis"}, NotFound("no recordable process is named 'redis'", reason="", help="redis-server")),
        ({"name": "nginx"}, FailedPrecondition("was not started ready", reason="", help="permille run -- CMD")),
        (
            {"pids": (13,), "period_ms": 60_001},
            InvalidArgument("60001 ms is outside 1 ms to 60000 ms", reason="", help="choose 1 to"),
        ),
        ({}, InvalidArgument("names no process", reason="", help="--pid or --name")),
        ({"pids": (13,), "node": "nodes/n9"}, NotFound("no controller of node n9", reason="", help="n1")),
        ({"pids": (13,), "node": "n1"}, InvalidArgument("does not name a node", reason="", help="nodes/<name>")),
    ],
)
async def test_a_wish_that_cannot_be_fulfilled_says_why_and_what_to_do(
    coverage: Coverage, controller: Controller, target: dict[str, Any], error: PermilleError
) -> None:
    for call in (coverage.plan, coverage.begin):
        with pytest.raises(type(error), match=error.message) as caught:
            await call(**target)
        assert error.help in caught.value.help


async def test_a_process_that_ended_meanwhile_says_so(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.ends_after_plan = 13
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,))).name))
    assert error is not None
    assert (error.code, error.reason) == (Code.NOT_FOUND, "TARGET_ENDED")


async def test_without_any_controller_the_way_out_is_named(coverage: Coverage) -> None:
    with pytest.raises(Unavailable, match="no controller is running") as caught:
        await coverage.plan(pids=(13,))
    assert "permille up" in caught.value.help


def profile_of(name: str, *, limit: int, min_gain: float = 0.0) -> coverage_pb2.CoverageRequest:
    return coverage_pb2.CoverageRequest(
        target=coverage_pb2.Target(process_name=name),
        purpose=coverage_pb2.PURPOSE_PROFILING,
        period_ms=100,
        rounds=coverage_pb2.AdaptiveRounds(limit=limit, min_gain=min_gain),
    )


USUAL: dict[str, Iterable[int]] = dict.fromkeys(("get", "set", "reply"), range(10))


def with_rare(session: int) -> dict[str, Iterable[int]]:
    """What always runs, and two functions that only this session runs, once each."""
    return {**USUAL, f"rare-{session}": [3], f"rarer-{session}": [8]}


async def start_profile(coverage: Coverage, request: coverage_pb2.CoverageRequest) -> Operation:
    start = coverage_pb2.StartCoverageRequest(request_id="rounds", coverage=request)
    return (await coverage._call("StartCoverage", start, coverage_pb2.StartCoverageResponse)).operation


async def test_rounds_go_to_another_replica_while_new_functions_come_and_end_when_none_do(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    decoder.ran = lambda session: with_rare(session) if session < 4 else USUAL
    # A session has five MiB. After the eighth 13.1 are thought to be unseen, and the next to bring 0.71.
    operation = await start_profile(coverage, profile_of("redis-server", limit=9, min_gain=0.15))
    result = result_of(await coverage.wait(operation.name))
    assert [done.new_functions for done in result.rounds] == [6, 2, 2, 0, 0, 0, 0, 0]
    assert {done.next for done in result.rounds[:-1]} == {coverage_pb2.Round.ACTION_REPLICA}
    assert result.rounds[-1].expected_new_functions == pytest.approx(13.125 * 6 / (8 * 13.125 + 6))
    assert result.rounds[-1].next == coverage_pb2.Round.ACTION_STOP
    assert "are wanted" in result.rounds[-1].reason
    assert len(result.sessions) == len(result.rounds) == controller.starts == len(decoder.decoded)


async def test_rounds_of_named_processes_are_refused_before_anything_begins(
    coverage: Coverage, controller: Controller
) -> None:
    request = profile_of("", limit=3)
    request.target.pids.extend((11, 12))
    with pytest.raises(InvalidArgument, match="the target is pids") as refused:
        await start_profile(coverage, request)
    assert (refused.value.reason, controller.plans) == ("ROUNDS_TARGET", 0)


async def test_no_more_rounds_are_made_than_asked_for(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.ran = with_rare
    operation = await start_profile(coverage, profile_of("redis-server", limit=2, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert result.rounds[-1].reason == "2 rounds are as many as were asked for"
    # Another process each time, while there is one.
    assert [list(node.pids) for node in result.plan.nodes] == [[11], [12]]


async def test_a_coverage_killed_between_rounds_goes_on_with_the_next_one_and_repeats_none(
    coverage: Coverage, controller: Controller, decoder: Decoder, another: Coverage
) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    second_decode = asyncio.Event()

    def held(session: int) -> dict[str, Iterable[int]]:
        if session == 2:
            second_decode.set()
        return with_rare(session)

    decoder.ran = held
    operation = await start_profile(coverage, profile_of("redis-server", limit=4, min_gain=1e-9))
    await second_decode.wait()
    await coverage.kill()
    await another.start()
    result = result_of(await another.wait(operation.name))
    assert len(result.rounds) == 4
    assert controller.starts == len(decoder.decoded) == len(result.sessions) == 4
    assert len({pid for node in result.plan.nodes for pid in node.pids}) == 4


async def test_a_replica_that_ended_meanwhile_is_passed_over(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys((100, 101, 102), "redis-server")
    controller.ends_after_plan = 101
    controller.go_on.set()
    decoder.ran = with_rare
    operation = await start_profile(coverage, profile_of("redis-server", limit=3, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert [done.reason.startswith("not recorded") for done in result.rounds] == [False, True, False]
    assert [list(node.pids) for node in result.plan.nodes] == [[100], [101], [102]]
    assert len(result.sessions) == 2


async def test_a_later_round_whose_node_another_request_has_is_passed_over(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.go_on.clear()
    decoder.ran = with_rare
    profile = await start_profile(coverage, profile_of("redis-server", limit=2, min_gain=1e-9))
    await coverage.until(profile.name, "DECODING")
    controller.go_on.clear()
    other = await coverage.begin(pids=(13,))
    assert not (await coverage.until(other.name, "RECORDING")).done
    decoder.go_on.set()
    result = result_of(await coverage.wait(profile.name))
    assert result.rounds[1].reason == "not recorded: another request's heavy session records on nodes/n1"
    assert len(result.sessions) == 1
    controller.go_on.set()
    result_of(await coverage.wait(other.name))
    assert controller.most_at_once == 1


async def test_a_later_round_that_fails_costs_only_itself(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys((100, 101, 102), "redis-server")
    controller.go_on.set()

    def failing_once(session: int) -> dict[str, Iterable[int]]:
        if session == 2:
            raise FailedPrecondition("this cannot be decoded", reason="BROKEN")
        return with_rare(session)

    decoder.ran = failing_once
    operation = await start_profile(coverage, profile_of("redis-server", limit=3, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert [done.reason.startswith("not recorded: this cannot") for done in result.rounds] == [False, True, False]
    assert len(result.sessions) == 2
    assert [failure.message for failure in result.failures] == ["this cannot be decoded"]


async def test_what_has_been_seen_is_told_by_build_with_what_is_missing(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    for session in range(1, 5):
        decoder.tables.add(f"nodes/n1/sessions/s{session}", with_rare(session))
    decoder.tables.add("nodes/n1/sessions/old", {"get": [1]}, build_id="cd")
    request = coverage_pb2.GetCoverageRequest(of=coverage_pb2.SessionSet(target="redis-server"), functions=3)
    found = await coverage._call("GetCoverage", request, coverage_pb2.GetCoverageResponse)
    newer, older = found.versions
    assert (newer.build_id, newer.sessions, newer.functions.seen) == ("ab", 4, 12)
    # Eight of one session and none of two: (4 - 1) / 4 * 8 * 7 / 2.
    assert newer.functions.unseen == pytest.approx(21)
    assert newer.edges.seen == 11
    assert (older.build_id, older.sessions) == ("cd", 1)
    assert (len(found.functions), found.functions_total) == (3, 14)
    assert {replica.session: replica.functions_only_here for replica in found.replicas}["nodes/n1/sessions/s1"] == 2

    plan = coverage_pb2.PlanCoverageRequest(coverage=profile_of("redis-server", limit=0), outlook=True)
    planned = (await coverage._call("PlanCoverage", plan, coverage_pb2.PlanCoverageResponse)).plan
    assert planned.coverage[0].functions.seen == 12
    assert 0 < planned.coverage[0].missing_after < 21


async def test_two_sessions_are_held_against_each_other(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.tables.add("nodes/n1/sessions/a", {f"f{n}": [1] for n in range(30)})
    decoder.tables.add("nodes/n1/sessions/b", {"f0": [1], "slow": [1]})
    request = coverage_pb2.DiffCoverageRequest(
        a=coverage_pb2.SessionSet(sessions=["nodes/n1/sessions/a"]), b=coverage_pb2.SessionSet(sessions=["b"])
    )
    found = await coverage._call("DiffCoverage", request, coverage_pb2.DiffCoverageResponse)
    assert list(found.b) == ["nodes/n1/sessions/b"]
    assert found.functions[0].name == "slow"
    assert (found.functions[0].only_in, found.calls[0].caller, found.calls[0].name) == ("b", "main", "slow")


async def test_sessions_that_are_not_there_or_not_said_are_refused(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    async def ask(of: coverage_pb2.SessionSet) -> object:
        request = coverage_pb2.GetCoverageRequest(of=of)
        return await coverage._call("GetCoverage", request, coverage_pb2.GetCoverageResponse)

    with pytest.raises(FailedPrecondition, match="session s9 is not decoded"):
        await ask(coverage_pb2.SessionSet(sessions=["s9"]))
    with pytest.raises(NotFound, match="named nobody"):
        await ask(coverage_pb2.SessionSet(target="nobody"))
    for wrong in (coverage_pb2.SessionSet(), coverage_pb2.SessionSet(sessions=["a"], target="b")):
        with pytest.raises(InvalidArgument, match="sessions, or an operation, or a target"):
            await ask(wrong)
    with pytest.raises(NotFound):
        await ask(coverage_pb2.SessionSet(operation="operations/000000000000-00000000"))


async def test_complexity_counts_what_all_sessions_have_seen_together(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = {11: "redis-server"}
    decoder.ran = with_rare

    async def complexity() -> str:
        (node,) = (await coverage.plan(pids=(11,), period_ms=0)).nodes
        return next(term.detail for term in node.period_terms if term.name == "complexity")

    assert await complexity() == "never seen running"
    # Main, three others, and two that only this session ran.
    for told in ("6 functions seen", "8 functions seen"):
        controller.go_on.clear()
        operation = await coverage.begin(pids=(11,))
        await coverage.until(operation.name, "RECORDING")
        controller.go_on.set()
        result_of(await coverage.wait(operation.name))
        assert await complexity() == told


async def test_troubles_make_later_periods_longer(coverage: Coverage, controller: Controller, decoder: Decoder) -> None:
    controller.go_on.set()
    before = (await coverage.plan(pids=(13,), period_ms=0)).nodes[0]
    request = coverage_pb2.StartCoverageRequest(coverage=wish(pids=(13,)))
    request.coverage.purpose = coverage_pb2.PURPOSE_ANOMALY
    started = await coverage._call("StartCoverage", request, coverage_pb2.StartCoverageResponse)
    await coverage.wait(started.operation.name)
    after = (await coverage.plan(pids=(13,), period_ms=0)).nodes[0]

    def stability(node: coverage_pb2.NodePlan) -> float:
        return next(term.contribution for term in node.period_terms if term.name == "stability")

    assert (stability(before), stability(after) > 0) == (0, True)


async def test_one_anomaly_is_one_trouble_however_many_requests_are_about_it(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 24), "server")
    controller.go_on.set()

    async def begin(request_id: str, pid: int, cause: str = "") -> Operation:
        request = coverage_pb2.StartCoverageRequest(request_id=request_id, coverage=wish(pids=(pid,)))
        request.coverage.purpose, request.coverage.cause = coverage_pb2.PURPOSE_ANOMALY, cause
        return (await coverage._call("StartCoverage", request, coverage_pb2.StartCoverageResponse)).operation

    async def troubles() -> str:
        (node,) = (await coverage.plan(pids=(20,), period_ms=0)).nodes
        return next(term.detail for term in node.period_terms if term.name == "stability")

    # One after the other and at the same time.
    starts = (begin("same", 20) for _ in range(5))
    same = {operation.name for operation in (*await asyncio.gather(*starts), await begin("same", 20))}
    assert (len(same), await troubles()) == (1, "1.0 recent troubles")
    result_of(await coverage.wait(same.pop()))
    pods = [await begin(f"uid.{pid}", pid, cause="uid") for pid in controller.processes]
    assert await troubles() == "2.0 recent troubles"
    for operation in pods:
        result_of(await coverage.wait(operation.name))
