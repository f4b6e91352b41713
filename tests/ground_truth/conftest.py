"""Programs under the recorder in truth mode, and what libipt and the Rust flow make of their streams."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest
from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.vpt_control import Control
from permille.controller.domain.vpt_recording import stream_header
from permille.controller.main import PLUGIN

from tests.processes import connects, free_port

ROOT = Path(__file__).parents[2]
PTCORE = ROOT / "services/decoder/ptcore"
PROGRAMS = ROOT / "tests/programs"
ORACLE = ROOT / "tests/oracle"
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
T = TypeVar("T")
RESULT = re.compile(r"equal (\d+) gaps (\d+) errors (\d+) missing (\d+) beyond (\d+)")


@dataclass(frozen=True)
class Verdict:
    """What a decoder made of one stream, against the truth."""

    equal: int
    gaps: int
    errors: int
    missing: int
    beyond: int
    same: bool
    told: str


@dataclass(frozen=True)
class Deciders:
    """The two decoders that are held against the truth."""

    libipt: Path
    flow: Path

    def verdicts(self, recording: Recording) -> Iterator[tuple[str, vpt.StreamHeader, Verdict]]:
        tools = {"libipt": self.libipt, "flow": self.flow}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            todo = [
                (name, header, pool.submit(verdict, tool, recording.folder, header.index))
                for header in recording.streams()
                for name, tool in tools.items()
            ]
            for name, header, done in todo:
                yield name, header, done.result()


def example(name: str) -> Path:
    """A program of ptcore's that compares something, built as its tests are, with what these have built already."""
    command = ["cargo", "build", "-q", "--profile", "checked", "--workspace", "--example", name]
    subprocess.run(command, cwd=PTCORE, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", PTCORE / "target")) / "checked/examples" / name


def compared(tool: Path, folder: Path, stream: int) -> subprocess.CompletedProcess[str]:
    """What such a program says of a stream of a recording."""
    return subprocess.run([tool, folder, str(stream)], check=False, capture_output=True, text=True, timeout=600)


def verdict(tool: Path, folder: Path, stream: int) -> Verdict:
    done = compared(tool, folder, stream)
    numbers = RESULT.search(done.stdout)
    assert numbers is not None, f"{tool.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    equal, gaps, errors, missing, beyond = map(int, numbers.groups())
    return Verdict(equal, gaps, errors, missing, beyond, done.returncode == 0, done.stdout[-2000:])


@dataclass
class Recording:
    """A finished session of one process, still in its folder."""

    folder: Path
    page: vpt.Control

    def streams(self) -> list[vpt.StreamHeader]:
        """The streams that a thread took."""
        headers = [stream_header(self.folder / f"stream-{index}.pt") for index in range(self.page.streams)]
        return [header for header in headers if header.tid]


class Target:
    """A program under QEMU with the recorder."""

    def __init__(self, process: subprocess.Popen[bytes], vpt_dir: Path) -> None:
        self.process = process
        self.vpt_dir = vpt_dir
        self.folder = vpt_dir / str(process.pid)
        self.control = wait_for(lambda: open_control(self.folder), "the control page", process)

    def arm(
        self,
        flags: vpt.Flags,
        *,
        period_ms: int = 300,
        streams: int = 12,
        size_bytes: int = 64 << 20,
        psb_freq: int = 2,
        mtc_freq: int = 3,
        bandwidth: int = 0,
        session: str = "truth",
    ) -> None:
        page = self.control.page
        assert page.state in (vpt.State.IDLE, vpt.State.REFUSED)
        page.session, page.period_ns, page.flags = session.encode(), period_ms * 1_000_000, flags
        page.psb_freq, page.mtc_freq, page.bandwidth_bytes_per_ms = psb_freq, mtc_freq, bandwidth
        page.stop_request = 0
        for index in range(streams):
            page.planned[index] = vpt.Planned(0, 0, size_bytes)
        page.planned_count = streams
        page.state = vpt.State.ARMED

    def finished(self, timeout_s: float = 60) -> Recording:
        busy = (vpt.State.ARMED, vpt.State.ACTIVE)
        wait_for(lambda: self.control.state not in busy, "the end", self.process, timeout_s)
        page = self.control.page
        assert page.state == vpt.State.FINISHED, bytes(page.error).decode()
        return Recording(self.folder, page)

    def as_it_is(self) -> Recording:
        """What is there of a session that may be going on."""
        return Recording(self.folder, self.control.page)

    def of(self, control: Control) -> Recording:
        """The session of another process, a child."""
        return Recording(control.folder, control.page)

    def reopened(self) -> bool:
        """Takes the control page anew, as the program may have become another."""
        page = open_control(self.folder)
        self.control = page if page is not None else self.control
        return page is not None

    def record(self, flags: vpt.Flags, **options: int) -> Recording:
        self.arm(flags, **options)  # type: ignore[arg-type]
        return self.finished()

    def record_some(self, flags: vpt.Flags, *, threads: int, **options: int) -> Recording:
        """Records until so many threads have written something: on a busy machine one may not run for a while."""

        def written() -> bool:
            return sum(1 for one in self.as_it_is().streams() if one.written_bytes) >= threads

        return self._record_while_not(written, f"{threads} threads to be recorded", flags, options)

    def record_until_full(self, flags: vpt.Flags, **options: int) -> Recording:
        """Records until some buffer is full."""

        def is_full() -> bool:
            return any(one.full for one in self.as_it_is().streams())

        return self._record_while_not(is_full, "a full buffer", flags, options)

    def _record_while_not(
        self, done: Callable[[], bool], what: str, flags: vpt.Flags, options: dict[str, int]
    ) -> Recording:
        self.arm(flags, period_ms=60_000, **options)  # type: ignore[arg-type]
        wait_for(lambda: self.control.state == vpt.State.ACTIVE and done(), what, self.process)
        self.control.page.stop_request = 1
        return self.finished()

    def record_until(self, enough: int, judge: Callable[[Recording], int], flags: vpt.Flags, **options: int) -> None:
        """Records again and again until `judge` has found so many instructions, however slow the machine is."""
        while enough > 0:
            recording = self.record(flags, **options)
            with self.at_rest():
                enough -= judge(recording)
            self.release()

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """The program stands still, and leaves the machine to whoever looks at its recording."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def release(self) -> None:
        self.control.page.state = vpt.State.IDLE
        wait_for(lambda: not list(self.folder.glob("stream-*.pt")), "the recorder's cleaning", self.process)


def open_control(folder: Path) -> Control | None:
    with contextlib.suppress(OSError, ValueError):
        return Control(folder)
    return None


def wait_for(
    look: Callable[[], T | None], what: str, process: subprocess.Popen[bytes] | None = None, timeout_s: float = 180
) -> T:
    """What `look` returns once it is true; fails the test after `timeout_s` or at the end of the process."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s for {what}")
        if process is not None and process.poll() is not None:
            pytest.fail(f"the program ended ({process.returncode}) before {what}")
        time.sleep(0.002)
    return found


@dataclass(frozen=True)
class Lab:
    """Where programs are recorded, and the programs."""

    vpt_dir: Path
    programs: Path
    scratch: Path

    @contextlib.contextmanager
    def run(self, *command: str | Path, follow: bool = False, **options: object) -> Iterator[Target]:
        """A program under the recorder; killed at the end."""
        if not PLUGIN.exists():
            pytest.fail(f"{PLUGIN} is not built: make -C services/controller/vpt")
        plugin = f"{PLUGIN},dir={self.vpt_dir},follow={'on' if follow else 'off'}"
        emulated = ["qemu-x86_64", "-plugin", plugin, *map(str, command)]
        process = subprocess.Popen(emulated, **{**QUIET, **options})  # type: ignore[call-overload]
        try:
            yield Target(process, self.vpt_dir)
        finally:
            process.kill()
            process.wait()

    def processes(self) -> dict[int, Control]:
        """The control pages of all recordable processes, by process."""
        pages = [open_control(folder) for folder in self.vpt_dir.iterdir()]
        return {page.pid: page for page in pages if page is not None}

    @contextlib.contextmanager
    def busy(self, workload: str) -> Iterator[Target]:
        """One of the workloads, at work."""
        with getattr(self, f"_{workload}")() as target:
            yield target

    def at(self, vpt_dir: Path) -> Lab:
        """The same elsewhere."""
        return replace(self, vpt_dir=vpt_dir)

    def stopped(self, tid: int) -> contextlib.AbstractContextManager[None]:
        """A thread of a recorded program stands still, wherever it is."""
        return stopped(tid)

    def wait(self, look: Callable[[], T | None], what: str) -> T:
        return wait_for(look, what)

    def program(self, *parts: str) -> contextlib.AbstractContextManager[Target]:
        """tests/programs, all its parts or some."""
        return self.run(self.programs / "program", self.programs / "plugin.so", *parts)

    @contextlib.contextmanager
    def _program(self) -> Iterator[Target]:
        with self.program() as target:
            wait_for(
                lambda: len(list(Path(f"/proc/{target.process.pid}/task").iterdir())) >= 10, "the program's threads"
            )
            yield target

    @contextlib.contextmanager
    def _gzip(self) -> Iterator[Target]:
        text = self.scratch / "text"
        words = [bytes(random.Random(n).choices(b"etaoinshrdlu", k=n % 11 + 1)) for n in range(5000)]
        text.write_bytes(b" ".join(random.Random(0).choices(words, k=200_000)))
        feeder = subprocess.Popen(["sh", "-c", f"while cat {text}; do :; done"], stdout=subprocess.PIPE)
        try:
            with self.run("/usr/bin/gzip", "-c", stdin=feeder.stdout) as target:
                yield target
        finally:
            feeder.kill()
            feeder.wait()

    @contextlib.contextmanager
    def _python(self) -> Iterator[Target]:
        with self.run("/usr/bin/python3", Path(__file__).with_name("json_work.py"), stdout=subprocess.PIPE) as target:
            assert target.process.stdout is not None
            target.process.stdout.readline()
            yield target

    @contextlib.contextmanager
    def _redis(self) -> Iterator[Target]:
        port = free_port()
        io = ["--io-threads", "4", "--io-threads-do-reads", "yes"]
        load = ["redis-benchmark", "-p", str(port), "-c", "20", "-n", "100000000", "-r", "10000", "-t", "set,get"]
        with self.run("/usr/bin/redis-server", "--port", str(port), "--save", "", *io) as target:
            wait_for(lambda: connects(port), "redis-server", target.process)
            benchmark = subprocess.Popen(load, **QUIET)  # type: ignore[call-overload]
            try:
                wait_for(lambda: len(list(Path(f"/proc/{target.process.pid}/task").iterdir())) >= 9, "the I/O threads")
                yield target
            finally:
                benchmark.kill()
                benchmark.wait()


@contextlib.contextmanager
def stopped(tid: int) -> Iterator[None]:
    """A thread of another process stands still, wherever it is."""
    command = [sys.executable, str(Path(__file__).with_name("stop_thread.py")), str(tid)]
    debugger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert debugger.stdin is not None
    assert debugger.stdout is not None
    try:
        assert debugger.stdout.readline() == b"stopped\n"
        yield
    finally:
        debugger.stdin.close()
        debugger.wait()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("programs")
    subprocess.run(["make", "-s", "-C", PROGRAMS, f"OUT={out}"], check=True)
    return out


@pytest.fixture(scope="session")
def deciders() -> Deciders:
    subprocess.run(["make", "-s", "-C", ORACLE, "vpt_oracle"], check=True)
    return Deciders(ORACLE / "vpt_oracle", example("truth"))


@pytest.fixture(scope="session")
def differential() -> Callable[[Path, int], str]:
    """What the comparison of both decoders, layer by layer, says of a stream of a recording."""
    program = example("differential")
    subprocess.run(["make", "-s", "-C", ORACLE], check=True)

    def compare(folder: Path, stream: int) -> str:
        done = compared(program, folder, stream)
        return done.stdout + done.stderr

    return compare


@pytest.fixture
def lab(programs: Path, tmp_path: Path) -> Iterator[Lab]:
    vpt_dir = Path(tempfile.mkdtemp(prefix="permille-test-", dir="/dev/shm"))
    yield Lab(vpt_dir, programs, tmp_path)
    shutil.rmtree(vpt_dir, ignore_errors=True)
