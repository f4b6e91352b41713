"""The command as its user has it: a real `permille up`, real programs, the console script."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.loaded_command import run_loaded

BIN = Path(sysconfig.get_path("scripts"))
PERMILLE = BIN / "permille"
BUSY = """
#include <stdio.h>
#include <unistd.h>
static volatile unsigned long sum;
__attribute__((noinline)) void inner_work(void) { for (int i = 0; i < 200; i++) sum += i; }
__attribute__((noinline)) void outer_work(void) { for (int i = 0; i < 10; i++) inner_work(); }
/* With pauses: it runs beside many tests. */
int main(void) { puts("begun"); fflush(stdout); for (int n = 1;; n++) { outer_work(); if (n % 20 == 0) usleep(1000); } }
"""


@dataclass
class Mesh:
    """`permille up` on its own state folder, and commands for it."""

    state: Path
    environment: dict[str, str] = field(default_factory=dict)
    up: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """What `permille up` said so far."""
        return (self.state.parent / "up.log").read_text()

    def variables(self) -> dict[str, str]:
        """The environment of every command."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PERMILLE_")}
        return {
            **inherited,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PERMILLE_STATE_DIR": str(self.state),
            # Programs that other tests run must not be found here.
            "PERMILLE_CONTROLLER_VPT_DIR": str(self.state.parent / "vpt"),
            **self.environment,
        }

    def run(
        self, *arguments: str | Path, code: int | None = 0, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end; its exit code must be `code` (None: whatever)."""
        done = run_loaded(arguments, self.variables(), timeout_s)
        command = " ".join(map(str, arguments))
        told = f"permille {command} -> {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert code is None or done.returncode == code, told
        assert "Traceback" not in done.stderr, told
        return done

    def json(self, *arguments: str | Path) -> Any:
        """What a command prints with --json."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def popen(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen([PERMILLE, *arguments], env=self.variables(), text=True, **options)

    def start(self) -> None:
        """Returns when it says that it is ready."""
        with (self.state.parent / "up.log").open("w") as log:
            self.up = self.popen("up", stdout=log, stderr=log)
        up = self.up
        await_true(lambda: "ready: " in self.log or up.poll() is not None, 120, "permille up")
        assert up.poll() is None, self.log

    def stop(self) -> int:
        """Asks it to drain; its exit code."""
        assert self.up is not None
        self.up.send_signal(signal.SIGINT)
        return self.up.wait(60)

    def processes(self) -> dict[str, psutil.Process]:
        """What runs below `permille up`, by name: etcd and the services."""
        assert self.up is not None
        found = {}
        for child in psutil.Process(self.up.pid).children():
            with contextlib.suppress(psutil.Error):
                for word in child.cmdline()[:2]:
                    if Path(word).name.startswith(("permille-", "etcd")):
                        found[Path(word).name.removeprefix("permille-")] = child
        return found


def await_true(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Polls until the condition holds; fails the test naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def new_mesh(**environment: str) -> Mesh:
    folder = Path(tempfile.mkdtemp(prefix="permille-cli-"))
    return Mesh(folder / "state", environment)


def end(mesh: Mesh) -> None:
    if mesh.up is not None and mesh.up.poll() is None:
        mesh.stop()
    shutil.rmtree(mesh.state.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def mesh() -> Iterator[Mesh]:
    """One mesh for the tests that break nothing."""
    started = new_mesh()
    try:
        started.start()
        yield started
    finally:
        end(started)


@pytest.fixture
def own_mesh() -> Iterator[Mesh]:
    """A mesh that a test may break; not started yet."""
    # Who dies is noticed soon. Where nobody does, a busy machine needs longer to give a sign of life.
    made = new_mesh(PERMILLE_LEASE_TTL_S="2")
    try:
        yield made
    finally:
        end(made)


@pytest.fixture(scope="session")
def busy_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that calls outer_work, which calls inner_work, for ever."""
    folder = tmp_path_factory.mktemp("programs")
    source = folder / "busy.c"
    source.write_text(BUSY)
    subprocess.run(["cc", "-O1", "-o", folder / "permille-busy", source], check=True)
    return folder / "permille-busy"


@contextlib.contextmanager
def running(mesh: Mesh, *command: str | Path, options: Sequence[str] = ("-q",)) -> Iterator[subprocess.Popen[str]]:
    """A program started by `permille run`, at work."""
    process = mesh.popen("run", *options, "--", *command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def busy(mesh: Mesh, busy_program: Path) -> Iterator[subprocess.Popen[str]]:
    """The busy program on the shared mesh."""
    with running(mesh, busy_program) as process:
        yield process


@pytest.fixture(scope="session")
def session(mesh: Mesh, busy: subprocess.Popen[str]) -> str:
    """The name of a decoded session of the busy program."""
    return recorded(mesh, busy.pid, "inner_work")


def recorded(mesh: Mesh, pid: int, function: str | None = None) -> str:
    """A session in which the function, or any at all, ran: on a busy machine a process may not run for a while."""
    for _ in range(20):
        session: str = mesh.json("trace", "--pid", str(pid), "--for", "50ms")["sessions"][0]
        names = {row["name"] for row in mesh.json("report", session, "--top", "0")["functions"]}
        if function in names or (names and function is None):
            return session
    pytest.fail(f"process {pid} was recorded 20 times, and {function or 'any function'} never ran")


def plain_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PERMILLE_")}


def permille_alone(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command without any mesh."""
    return run_loaded(arguments, {**plain_environment(), **variables}, 60)
