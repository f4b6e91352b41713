"""A mesh of many nodes on this machine: etcd, one of each service, and simulated nodes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import service_key, wait_for
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.etcd import Etcd, connect

SERVICES = ("allocator", "decoder", "coverage")
# Once the rates that the nodes tell are learnt, their sessions are heavy, and requests wait for each other's nodes. A
# request on a thousand nodes beside a hundred others is more to decode than the cluster's quota lets begin.
COVERAGE = ["--coverage-patience-s", "60", "--coverage-heavy-bytes-per-second", "1e12"]
COVERAGE += ["--coverage-cluster-decode-ms", "0"]
PER_PROCESS = 50
READY_S = 300


@dataclass(frozen=True)
class Cost:
    """What a process has used until `at_s`: seconds of CPU and MiB of resident memory, without its children."""

    cpu_s: float
    resident_mib: float
    at_s: float


@dataclass
class Cluster:
    """Started by `start`, which needs the recorded session's id; `close` kills everything."""

    state: Path
    nodes: int
    session_id: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    # By process, what it uses while nobody asks for anything.
    idle_cores: dict[str, float] = field(default_factory=dict)

    async def start(self) -> None:
        self.etcd_server = EmbeddedEtcd(self.state / f"etcd-{self.nodes}")
        endpoint = await self.etcd_server.start()
        self.config = MeshConfig(etcd=(endpoint,), state_dir=self.state)
        self.etcd: Etcd = connect(self.config)
        self.channels = Channels(self.config, self.etcd)
        self._start("idle server", str(Path(__file__).with_name("idle_server.py")))
        for service in SERVICES:
            flags = COVERAGE if service == "coverage" else []
            flags += ["--etcd", endpoint, "--state-dir", str(self.state), "--metrics", "off"]
            self._start(service, "-m", f"permille.{service}.main", *flags)
        for service in SERVICES:
            await wait_for(self.etcd, service, timeout_s=READY_S)
        for first in range(0, self.nodes, PER_PROCESS):
            count = min(PER_PROCESS, self.nodes - first)
            self._agents(first, count, endpoint)
        async with asyncio.timeout(READY_S):
            async for found in self.etcd.observe_prefix(service_key("controller", "")):
                if len(found) == self.nodes:
                    break

    def costs(self) -> dict[str, Cost]:
        assert self.etcd_server.process is not None
        pids = {name: process.pid for name, process in self.processes.items()} | {"etcd": self.etcd_server.process.pid}
        return {name: cost(psutil.Process(pid)) for name, pid in pids.items()}

    async def puts(self) -> float:
        """Keys that etcd has written so far, from its own metrics."""
        url = f"http://{self.etcd_server.endpoint}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=30).read().decode())
        return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("etcd_mvcc_put_total"))

    def kill_a_third(self) -> set[int]:
        """The numbers of the nodes, every third process of them, that die at once, without a word."""
        dying = self.agents[::3][: max(1, len(self.agents) // 3)]
        for process in dying:
            process.send_signal(signal.SIGKILL)
        return {number for process in dying for number in self._numbers[process.pid]}

    async def close(self) -> None:
        await self.channels.close()
        for process in (*self.agents, *self.processes.values()):
            process.kill()
            await asyncio.to_thread(process.wait)
        await self.etcd.close()
        await self.etcd_server.stop()

    def _agents(self, first: int, count: int, endpoint: str) -> None:
        """In at least three processes, so that a third of them can die."""
        counts = [count] if self.nodes > 3 * PER_PROCESS else [count // 3, count // 3, count - 2 * (count // 3)]
        for part in counts:
            command = ["-m", "scale.agents", str(first), str(part), self.session_id, endpoint, str(self.state)]
            process = self._start("", *command)
            self.agents.append(process)
            self._numbers[process.pid] = range(first, first + part)
            first += part

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.state / f"{name or 'agents'}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log)
        if name:
            self.processes[name] = process
        return process

    def __post_init__(self) -> None:
        self._numbers: dict[int, range] = {}


def cost(process: psutil.Process) -> Cost:
    times = process.cpu_times()
    return Cost(times.user + times.system, process.memory_info().rss / (1 << 20), time.monotonic())


def spent(before: dict[str, Cost], after: dict[str, Cost]) -> dict[str, float]:
    """Seconds of CPU between the two, by process."""
    return {name: cost.cpu_s - before[name].cpu_s for name, cost in after.items()}


@dataclass
class Work:
    """Seconds of CPU of each process for so many nodes or sessions, without what it uses idle in the same time."""

    idle_cores: Mapping[str, float]
    count: int = 0
    elapsed_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)

    def add(self, before: dict[str, Cost], after: dict[str, Cost], count: int) -> None:
        """One more time, of this many."""
        self.count += count
        self.elapsed_s += after["etcd"].at_s - before["etcd"].at_s
        for name, cpu_s in spent(before, after).items():
            idle_s = self.idle_cores[name] * (after[name].at_s - before[name].at_s)
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + cpu_s - idle_s
