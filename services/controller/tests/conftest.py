"""A node: allocator and controller as processes of their own, on a real etcd, and a real program to record."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import pytest
from permille.api.controller.v1 import controller_pb2 as pb
from permille.api.controller.v1 import controller_pb2_grpc as rpc
from permille.controller.domain.vpt_backend import VptBackend
from permille.controller.main import PLUGIN
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import wait_for
from permille.mesh.errors import PermilleError
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error

TARGET = Path(__file__).with_name("target.c")
ENDED = (pb.Session.STATE_STORED, pb.Session.STATE_FAILED)


@dataclass
class Node:
    """One machine's allocator and controller; the test may kill and start them."""

    config: MeshConfig
    etcd: Etcd
    vpt_dir: Path
    settings: list[str] = field(default_factory=list)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    channels: Channels | None = None

    async def start(self, service: str) -> None:
        command = [sys.executable, "-m", f"permille.{service}.main", *self._flags(service)]
        log = self.config.state_dir.parent / f"{service}.log"
        with log.open("ab") as file:
            self.processes[service] = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            await wait_for(self.etcd, service, timeout_s=60)
        except PermilleError:
            pytest.fail(f"permille-{service} did not start:\n{log.read_text()}")

    async def kill(self, service: str, number: int = signal.SIGKILL) -> None:
        process = self.processes.pop(service)
        process.send_signal(number)
        await asyncio.to_thread(process.wait)
        # Its registration ends with its lease.
        while await self.etcd.prefix(f"/permille/v1/services/{service}/"):
            await asyncio.sleep(0.1)

    async def controller(self) -> rpc.ControllerServiceAsyncStub:
        if self.channels is None:
            self.channels = Channels(self.config, self.etcd)
        async with asyncio.timeout(60):
            while True:
                try:
                    return rpc.ControllerServiceStub(await self.channels.to("controller", self.config.node))
                except PermilleError as error:
                    # Its lease is short: where the machine stands still for as long, it is away for a moment.
                    if error.reason != "SERVICE_ABSENT":
                        raise
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        if self.channels is not None:
            await self.channels.close()
        for process in self.processes.values():
            process.kill()
            await asyncio.to_thread(process.wait)

    async def trace(self, pid: int, **changes: object) -> pb.Session:
        """Starts a session and waits for its end."""
        started = await self.begin(pid, **changes)
        return await self.end_of(started.name)

    async def begin(self, pid: int, **changes: object) -> pb.Session:
        request = pb.StartSessionRequest(pids=[pid], period_ms=300)
        request.MergeFrom(pb.StartSessionRequest(**changes))  # type: ignore[arg-type]
        with converted():
            return (await (await self.controller()).StartSession(request)).session

    async def end_of(self, name: str) -> pb.Session:
        return (await self.states_of(name))[-1]

    async def states_of(self, name: str) -> list[pb.Session]:
        with converted():
            call = (await self.controller()).WatchSession(pb.WatchSessionRequest(name=name))
            return [change.session async for change in call]

    async def until(self, name: str, state: pb.Session.State.ValueType, *, with_reason: bool = False) -> pb.Session:
        while True:
            session = (await (await self.controller()).GetSession(pb.GetSessionRequest(name=name))).session
            if session.state == state and (session.error_reason or not with_reason):
                return session
            assert session.state not in ENDED, f"waited for {pb.Session.State.Name(state)}: {session}"
            await asyncio.sleep(0.01)

    async def has_something(self, session: pb.Session) -> None:
        """Until more than 10,000 bytes are recorded: on a busy machine the target may not run for a while."""
        await self.until(session.name, pb.Session.STATE_RECORDING)
        recordings = VptBackend(self.vpt_dir).find(session.pids, session.name.rpartition("/")[2])
        while sum(stream.size_bytes for one in recordings for stream in one.streams()) <= 10_000:
            await asyncio.sleep(0.02)

    async def stop_when_it_has_something(self, session: pb.Session) -> None:
        await self.has_something(session)
        await (await self.controller()).StopSession(pb.StopSessionRequest(name=session.name))

    @contextlib.contextmanager
    def running(self, program: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program started ready to be recorded; killed at the end."""
        if not PLUGIN.exists():
            pytest.fail(f"{PLUGIN} is not built: make -C services/controller/vpt")
        command = ["qemu-x86_64", "-plugin", f"{PLUGIN},dir={self.vpt_dir}", str(program), *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    async def recordable(self, process: subprocess.Popen[bytes]) -> pb.Process:
        """Returns when the controller offers the program with all its threads."""
        controller = await self.controller()
        while True:
            # A call's own deadline is too short for the first one: a machine with too much to do may need longer.
            answer = await controller.GetNode(pb.GetNodeRequest(), timeout=180)
            for candidate in answer.node.processes:
                if candidate.pid == process.pid and candidate.threads >= 4:
                    return candidate
            assert process.poll() is None, "the target ended"
            await asyncio.sleep(0.05)

    def _flags(self, service: str) -> list[str]:
        flags = {
            "state-dir": self.config.state_dir,
            "node": self.config.node,
            "etcd": ",".join(self.config.etcd),
            "lease-ttl-s": self.config.lease_ttl_s,
            "drain-s": self.config.drain_s,
            "metrics": "off",
        }
        if service == "controller":
            flags["controller-vpt-dir"] = self.vpt_dir
        return [part for name, value in flags.items() for part in (f"--{name}", str(value))] + self.settings


@contextlib.contextmanager
def converted() -> Iterator[None]:
    """Failed calls as the errors that the server raised."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None


@pytest.fixture
def vpt_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="permille-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def node(mesh_config: MeshConfig, etcd: Etcd, vpt_dir: Path) -> AsyncIterator[Node]:
    node = Node(mesh_config, etcd, vpt_dir)
    await node.start("allocator")
    await node.start("controller")
    yield node
    await node.close()


@pytest.fixture(scope="session")
def target_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("target") / "target"
    subprocess.run(["gcc", "-O1", "-g", "-pthread", "-o", program, TARGET], check=True)
    return program


@pytest.fixture
async def target(node: Node, target_program: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    with node.running(target_program) as process:
        await node.recordable(process)
        yield process
