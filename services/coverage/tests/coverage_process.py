"""CoverageService as its own process, on a real etcd and real gRPC, and what it is asked for."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.rates import Observation
from permille.coverage.service.rate_store import RateStore
from permille.mesh import discovery
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error
from permille.mesh.operations import operation_error

Operation = operation_pb2.Operation
_Reply = TypeVar("_Reply")


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

    async def _stub(self) -> coverage_pb2_grpc.CoverageServiceAsyncStub:
        patience = time.monotonic() + 60
        while True:
            try:
                return coverage_pb2_grpc.CoverageServiceStub(await self.channels.to("coverage"))
            except Unavailable as error:
                # Its lease is short: where the machine stands still for as long, it is away for a moment.
                if error.reason != "SERVICE_ABSENT" or time.monotonic() > patience:
                    raise
            await asyncio.sleep(0.05)

    async def _call(self, method: str, request: Any, reply: type[_Reply]) -> _Reply:
        stub = await self._stub()
        try:
            answer = await getattr(stub, method)(request, timeout=60)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        assert isinstance(answer, reply)
        return answer


def wish(
    *,
    pids: tuple[int, ...] = (),
    name: str = "",
    cgroup: str = "",
    pod: str = "",
    node: str = "",
    period_ms: int = 100,
    namespace: str = "",
) -> coverage_pb2.CoverageRequest:
    target = coverage_pb2.Target(node=node, pids=pids, process_name=name, cgroup=cgroup, pod=pod)
    return coverage_pb2.CoverageRequest(
        target=target, purpose=coverage_pb2.PURPOSE_ON_DEMAND, period_ms=period_ms, namespace=namespace
    )


def result_of(operation: Operation) -> coverage_pb2.CoverageResult:
    assert operation_error(operation) is None, operation.error
    result = coverage_pb2.CoverageResult()
    assert operation.response.Unpack(result)
    return result


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


async def known_as_light(etcd: Etcd, name: str, *, backend: str = "vpt") -> None:
    """A program that writes a megabyte a second: none that a node has one session of at a time."""
    await RateStore(etcd).learn(backend, name, Observation(1, 1000, 1 << 20, 0, 600))


def profile_of(name: str, *, limit: int, min_gain: float = 0.0) -> coverage_pb2.CoverageRequest:
    return coverage_pb2.CoverageRequest(
        target=coverage_pb2.Target(process_name=name),
        purpose=coverage_pb2.PURPOSE_PROFILING,
        period_ms=100,
        rounds=coverage_pb2.AdaptiveRounds(limit=limit, min_gain=min_gain),
    )


async def start_profile(coverage: Coverage, request: coverage_pb2.CoverageRequest) -> Operation:
    start = coverage_pb2.StartCoverageRequest(request_id="rounds", coverage=request)
    return (await coverage._call("StartCoverage", start, coverage_pb2.StartCoverageResponse)).operation
