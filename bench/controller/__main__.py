"""What a controller costs its node: idle, and while it records and stores half a second of a redis-server under load.

The controller and whatever it started count, together. Processor time is theirs alone; what the traced program pays
is bench-vpt's. Memory is resident and, since libraries are shared with others, proportional (PSS); the peak is reset
before the sessions.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from figures import Figure, publish
from permille.api.controller.v1 import controller_pb2 as pb
from permille.cli.client import answer, mesh_client, parts
from permille.controller.main import ControllerSettings
from permille.mesh.config import MeshConfig
from workload import load, mesh, redis

IDLE_S = 20.0
IDLE_ROUNDS = 3
SESSIONS = 5
PERIOD_MS = 500
MB = 1e6


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time, and seconds that passed."""

    used_s: float
    passed_s: float

    @property
    def share(self) -> float:
        """Percent of one core."""
        return 100 * self.used_s / self.passed_s


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="permille-bench-") as state:
        os.environ["PERMILLE_STATE_DIR"] = state
        # A node's default, which is not that of `permille up`.
        os.environ["PERMILLE_CONTROLLER_CPU_SHARE"] = str(ControllerSettings().cpu_share)
        with mesh():
            service = controller()
            # What follows is what a node has all day.
            time.sleep(5)
            idle = [waited(service) for _ in range(IDLE_ROUNDS)]
            figures = idle_figures(service, idle)
            with redis() as (server, port), load(port):
                for process in service:
                    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
                sessions = asyncio.run(recorded(service, server.pid, Path(state)))
                figures |= session_figures(service, sessions)
            time.sleep(5)
            figures |= memory_figures("idle after sessions", service)
    publish("controller", figures)


def controller() -> list[psutil.Process]:
    """Ours, among whatever else runs: a descendant of this process; and its own descendants."""
    below = psutil.Process().children(recursive=True)
    (found,) = [process for process in below if any("permille-controller" in part for part in process.cmdline()[:2])]
    return [found, *found.children(recursive=True)]


def waited(service: list[psutil.Process]) -> Cost:
    before, began = used(service), time.monotonic()
    time.sleep(IDLE_S)
    return cost(service, before, began)


async def recorded(service: list[psutil.Process], pid: int, state: Path) -> list[tuple[Cost, pb.Session]]:
    """From the request for a session until its last byte is stored, once after the other."""
    sessions = []
    async with mesh_client(MeshConfig(state_dir=state)) as client:
        stub = await client.controller()
        for _ in range(SESSIONS):
            before, began = used(service), time.monotonic()
            request = pb.StartSessionRequest(pids=[pid], period_ms=PERIOD_MS)
            session = (await answer(stub.StartSession(request))).session
            async for change in parts(stub.WatchSession(pb.WatchSessionRequest(name=session.name, changes_only=True))):
                session = change.session
            if session.state != pb.Session.STATE_STORED:
                raise SystemExit(f"{session.name} failed: {session.error_message}")
            sessions.append((cost(service, before, began), session))
    return sessions


def used(service: list[psutil.Process]) -> float:
    return sum(seconds(process) for process in service)


def cost(service: list[psutil.Process], before: float, began: float) -> Cost:
    passed = time.monotonic() - began
    return Cost(used(service) - before, passed)


def seconds(process: psutil.Process) -> float:
    """With its threads that have ended; in steps of a clock tick, 10 ms."""
    times = process.cpu_times()
    return float(times.user + times.system)


def idle_figures(service: list[psutil.Process], idle: list[Cost]) -> dict[str, Figure]:
    return {
        "idle, processor time": Figure.of([cost.share for cost in idle], "% of a core", "at most 1"),
        "idle, processes": Figure.of([len(service)], ""),
        **memory_figures("idle", service),
    }


def memory_figures(when: str, service: list[psutil.Process]) -> dict[str, Figure]:
    memory = [process.memory_full_info() for process in service]
    return {
        f"{when}, resident": Figure.of([sum(one.rss for one in memory) / MB], "MB", "at most 67 (64 MiB)"),
        f"{when}, proportional": Figure.of([sum(one.pss for one in memory) / MB], "MB"),
    }


def session_figures(service: list[psutil.Process], sessions: list[tuple[Cost, pb.Session]]) -> dict[str, Figure]:
    costs = [cost for cost, _ in sessions]
    peak = sum(peak_bytes(process) for process in service)
    return {
        "session, processor time until stored": Figure.of([cost.share for cost in costs], "% of a core", "at most 5"),
        "session, processor time": Figure.of([1e3 * cost.used_s for cost in costs], "ms"),
        "session, until stored": Figure.of([cost.passed_s for cost in costs], "s"),
        "session, trace": Figure.of([session.raw_bytes / MB for _, session in sessions], "MB"),
        "session, processor time per trace": Figure.of(
            [1e3 * cost.used_s / (session.raw_bytes / MB) for cost, session in sessions], "ms/MB"
        ),
        "session, peak resident": Figure.of([peak / MB], "MB"),
    }


def peak_bytes(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
