"""A whole mesh on this machine, as `permille up` starts it, for tests that speak to it as a user does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

BIN = Path(sys.executable).parent


@dataclass
class WholeMesh:
    """`permille up` on its own state folder, and the command as its user."""

    state: Path
    up: subprocess.Popen[str]

    def run(self, *arguments: str, code: int | None = 0, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        """One `permille` command; the exit code must be `code` (None: whatever)."""
        done = subprocess.run(
            [BIN / "permille", *arguments],
            check=False,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        told = f"permille {' '.join(arguments)} -> {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        assert code is None or done.returncode == code, told
        assert "Traceback" not in done.stderr, told
        return done

    def json(self, *arguments: str, timeout_s: float = 240) -> Any:
        """What a command prints with --json."""
        return json.loads(self.run(*arguments, "--json", timeout_s=timeout_s).stdout)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PERMILLE_STATE_DIR": str(self.state), "PATH": f"{BIN}:{os.environ['PATH']}"}

    def service(self, name: str) -> psutil.Process:
        """The running process of one service, or of etcd."""
        wanted = "etcd" if name == "etcd" else f"permille-{name}"
        for child in psutil.Process(self.up.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(Path(word).name == wanted for word in child.cmdline()[:2]):
                    return child
        raise LookupError(f"no {wanted} below permille up")

    def stop(self) -> None:
        self.up.send_signal(signal.SIGINT)
        self.up.wait(60)


def start_mesh(state: Path, **environment: str) -> WholeMesh:
    """Starts a mesh and returns when it says that it is ready."""
    variables = {**os.environ, "PERMILLE_STATE_DIR": str(state), "PATH": f"{BIN}:{os.environ['PATH']}", **environment}
    log = (state / "up.log").open("w")
    up = subprocess.Popen([BIN / "permille", "up"], env=variables, stdout=log, stderr=log, text=True)
    mesh = WholeMesh(state, up)
    await_true(lambda: "ready" in (state / "up.log").read_text() or up.poll() is not None, 120, "permille up")
    assert up.poll() is None, (state / "up.log").read_text()
    return mesh


def await_true(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Polls until the condition holds; fails the test naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def child(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the block."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeMesh]:
    """One mesh that the tests which break nothing share."""
    started = start_mesh(tmp_path_factory.mktemp("mesh"))
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def own_mesh(tmp_path: Path) -> Iterator[WholeMesh]:
    """A mesh of one test, which may break it."""
    started = start_mesh(tmp_path)
    try:
        yield started
    finally:
        started.stop()


@contextlib.contextmanager
def redis_under_load(mesh: WholeMesh) -> Iterator[subprocess.Popen[str]]:
    """A redis-server with I/O threads, started by `permille run`, busy with SET and GET."""
    port = free_port()
    server = ["redis-server", "--port", str(port), "--save", "", "--io-threads", "2", "--io-threads-do-reads", "yes"]
    benchmark = [
        "redis-benchmark",
        "-p",
        str(port),
        "-c",
        "20",
        "-n",
        "100000000",
        "-r",
        "10000",
        "-t",
        "set,get",
        "-q",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with child([str(BIN / "permille"), "run", "--", *server], env=mesh.environment, **quiet) as process:
        await_true(lambda: connects(port) or process.poll() is not None, 60, "redis-server")
        with child(benchmark, **quiet):
            time.sleep(1)
            yield process


def connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
