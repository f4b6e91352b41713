"""A whole mesh on this machine, as `permille up` starts it, for tests that speak to it as a user does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from permille.cli import tables
from permille.cli.client import MeshClient, in_mesh
from permille.cli.rendering.answer_json import plain
from permille.controller.domain.vpt_backend import VptBackend
from permille.controller.domain.vpt_layout import Control, State
from permille.mesh.config import MeshConfig, load
from permille.mesh.discovery import Endpoint, wait_for
from permille.mesh.etcd import Etcd

from tests.loaded_command import run_loaded
from tests.processes import BIN, PATIENCE_S, Process, assert_ended, await_true, child, children, command_line

SERVICES = ("allocator", "controller", "decoder", "coverage")
TABLES = ("sessions", "segments", "functions", "calls", "edges", "accesses", "inlined", "losses")
_Result = TypeVar("_Result")


@dataclass
class WholeMesh:
    """`permille up` on its own state folder, and the command as its user.

    `vpt_dir`: where its recordable programs are. `variables`: its settings.
    """

    state: Path
    vpt_dir: Path
    variables: dict[str, str] = field(default_factory=dict)
    _up: Process | None = None

    @property
    def environment(self) -> dict[str, str]:
        own = {"PERMILLE_STATE_DIR": str(self.state), "PERMILLE_CONTROLLER_VPT_DIR": str(self.vpt_dir)}
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **own, **self.variables}

    @property
    def up(self) -> Process:
        """The process `permille up`."""
        assert self._up is not None, "the mesh was not started"
        return self._up

    def start(self) -> None:
        """Returns when it says that it is ready."""
        log = self.state / "up.log"
        with log.open("w") as file:
            command: list[str | Path] = [BIN / "permille", "up"]
            self._up = up = subprocess.Popen(command, env=self.environment, stdout=file, stderr=file, text=True)
        await_true(lambda: "ready" in log.read_text() or up.poll() is not None, PATIENCE_S, "permille up")
        assert up.poll() is None, log.read_text()

    def stop(self) -> None:
        """Ctrl-C; nothing of it may be left."""
        left = self.processes()
        self.up.send_signal(signal.SIGINT)
        assert self.up.wait(PATIENCE_S) == 0, (self.state / "up.log").read_text()
        assert_ended(left)

    def close(self) -> None:
        """Whatever state it is in."""
        left = self.processes()
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._up.wait(60)
            self._up.kill()
            self._up.wait()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self.vpt_dir, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """Everything that `permille up` started, whoever its parent is by now."""
        mine = str(self.state)
        found = [process for process in psutil.process_iter() if mine in " ".join(command_line(process))]
        return [one for process in found for one in (process, *children(process))]

    def service(self, name: str) -> psutil.Process:
        """The running process of one service, or of etcd."""
        wanted = "etcd" if name == "etcd" else f"permille-{name}"
        for one in children(psutil.Process(self.up.pid)):
            if any(Path(word).name == wanted for word in command_line(one)[:2]):
                return one
        raise LookupError(f"no {wanted} below permille up")

    def kill(self, name: str) -> None:
        """kill -9; returns when the supervisor has started it anew."""
        victim = self.service(name)
        victim.kill()
        victim.wait(PATIENCE_S)

        def back() -> bool:
            with contextlib.suppress(LookupError):
                return self.service(name).pid != victim.pid
            return False

        await_true(back, PATIENCE_S, f"{name} to be started again")

    def command(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """One `permille` command; the exit code must be `code` (None: whatever)."""
        return _whole(run_loaded(arguments, self.environment, 240), code)

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[Process]:
        """A `permille` command that goes on beside the test."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with child([str(BIN / "permille"), *arguments], env=self.environment, **pipes) as process:
            yield process

    def finished(self, process: Process, *, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """The end of a command from `started`."""
        out, err = process.communicate(timeout=240)
        return _whole(subprocess.CompletedProcess(process.args, process.returncode, out, err), code)

    def json(self, *arguments: str) -> Any:
        """What a command prints with --json."""
        return json.loads(self.command(*arguments, "--json").stdout)

    def refusal(self, *arguments: str, code: int) -> dict[str, Any]:
        """The error of a command that must fail."""
        told = self.command(*arguments, "--json", code=code).stderr
        error: dict[str, Any] = json.loads(told)["error"]
        return error

    def trace(self, pid: int, period: str, *arguments: str) -> str:
        """The id of the one session of a trace."""
        return session_of(self.command("trace", "--pid", str(pid), "--for", period, *arguments, "--json"))

    def trace_of_work(self, *target: str, function: str, calls: int, period: str = "200ms") -> str:
        """The id of a session in which a function was called so often: on a busy machine it may not run for a while."""
        for _ in range(20):
            session = session_of(self.command("trace", *target, "--for", period, "--json"))
            told = self.rows(f"SELECT calls FROM functions WHERE session_id = '{session}' AND name = '{function}'")
            if any(row["calls"] >= calls for row in told):
                return session
        pytest.fail(f"{' '.join(target)} was recorded 20 times, and never were there {calls} calls of {function}")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What `permille query` answers, without a process of its own."""
        found = self.asked(lambda client: tables.query(client, sql, 10_000))
        return [{name: plain(value) for name, value in row.items()} for row in found.rows]

    def asked(self, work: Callable[[MeshClient], Awaitable[_Result]]) -> _Result:
        """The result of the code that a command runs, in this process."""
        return in_mesh(load(MeshConfig, environment=self.environment), work)

    def report(self, session: str) -> dict[str, Any]:
        """What `permille report` says of a session, with all functions."""
        told: dict[str, Any] = self.json("report", session, "--top", "0")
        return told

    def counts(self, session: str) -> dict[str, int]:
        """How many rows each table has of a session."""
        each = (f"SELECT '{table}' AS t, count(*) AS n FROM {table} WHERE session_id = '{session}'" for table in TABLES)
        return {row["t"]: row["n"] for row in self.rows(" UNION ALL ".join(each))}

    def sessions(self) -> list[dict[str, Any]]:
        """What `permille sessions` lists, the newest first."""
        listed: list[dict[str, Any]] = self.json("sessions")["sessions"]
        return listed

    def endpoint(self, service: str) -> Endpoint:
        """Where one replica of a service listens, as etcd knows it."""

        async def find() -> Endpoint:
            etcd = Etcd([(self.state / "etcd" / "endpoint").read_text().strip()])
            try:
                return await wait_for(etcd, service, timeout_s=PATIENCE_S)
            finally:
                await etcd.close()

        return asyncio.run(find())

    @contextlib.contextmanager
    def running(self, *command: str, **options: Any) -> Iterator[Process]:
        """A program from `permille run`, when it is ready to be recorded."""
        options = {"stdout": subprocess.DEVNULL, **options}
        with child([str(BIN / "permille"), "run", "-q", "--", *command], env=self.environment, **options) as process:
            await_true(lambda: self.recorder(process.pid) or process.poll() is not None, PATIENCE_S, command[0])
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            yield process

    def recorder(self, pid: int) -> Control | None:
        """The control page that a recordable program shares with the controller; None when it is not there."""
        try:
            page = (self.vpt_dir / str(pid) / "control").read_bytes()
        except OSError:
            return None
        return Control.from_buffer_copy(page) if len(page) >= 4096 else None

    def await_recording(self, pid: int) -> None:
        """Returns while a recording of the program goes on."""

        def recording() -> bool:
            page = self.recorder(pid)
            return page is not None and page.state == State.ACTIVE

        await_true(recording, PATIENCE_S, f"a recording of {pid}")

    def await_work(self, pid: int, *, threads: int = 2, least_bytes: int = 20_000) -> None:
        """Returns when so many threads of a program that is being recorded have written at least so much each."""
        self.await_recording(pid)
        page = self.recorder(pid)
        assert page is not None
        (recording,) = VptBackend(self.vpt_dir).find([pid], page.session.decode())

        def worked() -> bool:
            return sum(stream.size_bytes >= least_bytes for stream in recording.streams()) >= threads

        await_true(worked, PATIENCE_S, f"{threads} threads of {pid} to have written {least_bytes} bytes each")


class RecordingWatch:
    """Sees how long a program was recorded, looking at its control page all the time."""

    def __init__(self, mesh: WholeMesh, pid: int) -> None:
        self._mesh = mesh
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.longest_s = 0.0

    def __enter__(self) -> RecordingWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        begun = None
        while not self._end.wait(0.002):
            page = self._mesh.recorder(self._pid)
            if page is None or page.state != State.ACTIVE:
                begun = None
                continue
            begun = begun or time.monotonic()
            self.longest_s = max(self.longest_s, time.monotonic() - begun)


def new_mesh(state: Path, **variables: str) -> WholeMesh:
    """One that is not started yet."""
    vpt_dir = Path(tempfile.mkdtemp(prefix="permille-test-", dir="/dev/shm"))
    return WholeMesh(state, vpt_dir, variables)


def session_of(done: subprocess.CompletedProcess[str]) -> str:
    """The id of the one session that `permille trace --json` tells."""
    (name,) = json.loads(done.stdout)["sessions"]
    return str(name).rpartition("/")[2]


def _whole(done: subprocess.CompletedProcess[str], code: int | None) -> subprocess.CompletedProcess[str]:
    told = f"{done.args!r} -> {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert code is None or done.returncode == code, told
    assert "Traceback" not in done.stderr and done.returncode != 1, told
    return done
