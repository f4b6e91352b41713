"""Switch records of a real multithreaded process, from the real kernel."""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
from permille.controller.domain.switches.switch_records import IN, OUT, SwitchRecord

from .conftest import lives

# Three threads that sleep and wake all the time, and every 50 ms one more that is born and ends.
TARGET = """
import threading, time
def busy():
    while True:
        time.sleep(0.001)
for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
print("up", flush=True)
while True:
    young = threading.Thread(target=lambda: [time.sleep(0.001) for _ in range(5)])
    young.start()
    young.join()
    time.sleep(0.05)
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("headers")


@pytest.fixture
async def recorder(cache: Path) -> AsyncIterator[SwitchRecorder]:
    recorder = SwitchRecorder(cache)
    if not await recorder.prepare():
        pytest.skip(f"no switch records on this machine: {recorder.unavailable}; {recorder.fix}")
    yield recorder
    await recorder.close()


@pytest.fixture
def target() -> Iterator[subprocess.Popen[str]]:
    with started() as process:
        yield process
        process.kill()


def started() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", TARGET], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


async def recorded(path: Path, enough: Callable[[list[SwitchRecord]], object]) -> None:
    """Waits until what the probe has written so far is enough."""
    async with asyncio.timeout(60):
        while not (path.exists() and enough(switch_records.parse(path.read_bytes()))):
            await asyncio.sleep(0.01)


def threads_of(pid: int) -> set[int]:
    return {int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()}


async def test_every_thread_of_the_target_alternates_between_in_and_out(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "switches"
    threads = threads_of(target.pid)
    assert await recorder.begin("one", [target.pid], path) == ""
    await recorded(path, lambda records: len(records) > 1000)
    counts = await recorder.end("one")

    records = switch_records.parse(path.read_bytes())
    assert counts.dropped == 0 and counts.unavailable == ""
    assert len(records) == counts.count > 1000
    assert {record.pid for record in records} == {target.pid}
    assert all(record.cpu < (os.cpu_count() or 1) for record in records)
    by_thread: dict[int, list[SwitchRecord]] = collections.defaultdict(list)
    for record in sorted(records, key=lambda record: record.time):
        by_thread[record.tid].append(record)
    doubled = 0
    for events in by_thread.values():
        for before, after in itertools.pairwise(events):
            doubled += before.operation == after.operation
            # A thread leaves the core that it came to.
            assert (before.operation, after.operation) != (IN, OUT) or before.cpu == after.cpu
    # Some kernels do not report switches away from some tasks of their own: then an arrival is missing, and counted.
    assert doubled <= counts.unseen < len(records) / 20
    # Others may have come since, or have gone before.
    assert threads & threads_of(target.pid) <= set(by_thread)


async def test_a_core_runs_one_thread_at_a_time(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "switches"
    await recorder.begin("one", [target.pid], path)
    await recorded(path, lambda records: len(records) > 500)
    counts = await recorder.end("one")
    on_core: dict[int, int] = {}
    unannounced = 0
    for record in sorted(switch_records.parse(path.read_bytes()), key=lambda record: record.time):
        running = on_core.pop(record.cpu, 0)
        if record.operation == OUT:
            unannounced += running != record.tid
        else:
            assert running == 0
            on_core[record.cpu] = record.tid
    # The first departure of each core is from before the session.
    assert unannounced <= counts.unseen + (os.cpu_count() or 1)


async def test_threads_born_during_the_session_are_recorded_from_their_first_arrival(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    before = threads_of(target.pid)
    path = tmp_path / "switches"
    await recorder.begin("one", [target.pid], path)
    await recorded(path, lambda records: len({record.tid for record in records} - before) >= 3)
    counts = await recorder.end("one")
    records = sorted(switch_records.parse(path.read_bytes()), key=lambda record: record.time)
    first = {record.tid: record.operation for record in reversed(records)}
    young = set(first) - before
    assert sum(first[tid] == OUT for tid in young) <= counts.unseen


async def test_two_sessions_at_once_each_get_their_own_target(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    with started() as other:
        await recorder.begin("one", [target.pid], tmp_path / "one")
        await recorder.begin("two", [other.pid], tmp_path / "two")
        await recorded(tmp_path / "one", lambda records: len(records) > 100)
        await recorded(tmp_path / "two", lambda records: len(records) > 100)
        await recorder.end("one")
        await recorder.end("two")
        other.kill()
    assert {record.pid for record in switch_records.parse((tmp_path / "one").read_bytes())} == {target.pid}
    assert {record.pid for record in switch_records.parse((tmp_path / "two").read_bytes())} == {other.pid}


async def test_a_probe_that_is_killed_says_so_and_the_next_session_has_a_new_one(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    await recorder.begin("one", [target.pid], tmp_path / "one")
    await recorded(tmp_path / "one", len)
    assert recorder.pid is not None
    os.kill(recorder.pid, signal.SIGKILL)
    counts = await recorder.end("one")
    assert "ended" in counts.unavailable
    assert switch_records.parse((tmp_path / "one").read_bytes())
    assert await recorder.begin("two", [target.pid], tmp_path / "two") == ""
    await recorded(tmp_path / "two", len)
    assert (await recorder.end("two")).count > 0


async def test_where_bcc_is_missing_the_reason_and_the_fix_are_named(cache: Path) -> None:
    recorder = SwitchRecorder(cache, interpreter=sys.executable)
    if await recorder.prepare():
        pytest.skip("this interpreter has BCC")
    assert "BCC" in recorder.unavailable or "root" in recorder.unavailable or "tracefs" in recorder.unavailable
    assert recorder.fix
    assert recorder.pid is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_without_root_the_reason_and_the_fix_are_named(cache: Path, tmp_path: Path) -> None:
    interpreter = tmp_path / "python-as-nobody"
    interpreter.write_text('#!/bin/sh\nexec setpriv --reuid 65534 --clear-groups /usr/bin/python3 "$@"\n')
    interpreter.chmod(0o755)
    recorder = SwitchRecorder(cache, interpreter=str(interpreter))
    assert not await recorder.prepare()
    assert recorder.unavailable and recorder.fix


def test_the_probe_ends_with_the_process_that_started_it(cache: Path) -> None:
    starter = """
import asyncio, os, signal, sys
from pathlib import Path
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
async def main():
    recorder = SwitchRecorder(Path(sys.argv[1]))
    await recorder.prepare()
    print(recorder.pid or 0, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", starter, str(cache)], stdout=subprocess.PIPE, text=True, check=False)
    probe = int(done.stdout)
    if not probe:
        pytest.skip("no switch records on this machine")
    deadline = time.monotonic() + 60
    while lives(probe):
        assert time.monotonic() < deadline, f"the probe {probe} outlives its parent"
        time.sleep(0.05)
