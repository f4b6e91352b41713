"""Switch records of a real multithreaded process, from the real kernel."""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from permille.controller.domain.switches import switch_records
from permille.controller.domain.switches.switch_recorder import PID, SwitchRecorder
from permille.controller.domain.switches.switch_recorder import TARGET as COUNTED
from permille.controller.domain.switches.switch_records import IN, OUT, SwitchRecord

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


@pytest.fixture
async def recorder() -> AsyncIterator[SwitchRecorder]:
    recorder = SwitchRecorder()
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
    """Waits until what the recorder has written so far is enough."""
    async with asyncio.timeout(60):
        while not (path.exists() and enough(switch_records.parse(path.read_bytes()))):
            await asyncio.sleep(0.01)


def any_later(time_ns: int, records: list[SwitchRecord]) -> bool:
    return any(record.time > time_ns for record in records)


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


async def test_a_session_goes_on_when_another_of_the_same_process_begins_and_ends(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    await recorder.begin("long", [target.pid], tmp_path / "long")
    await recorded(tmp_path / "long", lambda records: len(records) > 100)
    for plan in ("plan-1", "plan-2"):
        await recorder.begin(plan, [target.pid], tmp_path / plan)
        await recorded(tmp_path / plan, lambda records: len(records) > 100)
    for plan in ("plan-1", "plan-2"):
        assert (await recorder.end(plan)).count > 100
        after_it = time.monotonic_ns()
        await recorded(tmp_path / "long", partial(any_later, after_it))
    counts = await recorder.end("long")
    assert counts.dropped == 0 and counts.unavailable == ""
    assert len(switch_records.parse((tmp_path / "long").read_bytes())) == counts.count


async def test_each_of_two_sessions_of_a_process_counts_what_was_dropped_in_its_own_time(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    def drop(records: int) -> None:
        """As the program does where the ring is full."""
        assert recorder._object is not None
        targets = recorder._object.map("targets")
        dropped, unseen = COUNTED.unpack(targets.get(PID.pack(target.pid), COUNTED.size))
        targets.put(PID.pack(target.pid), COUNTED.pack(dropped + records, unseen))

    await recorder.begin("long", [target.pid], tmp_path / "long")
    drop(1)
    await recorder.begin("short", [target.pid], tmp_path / "short")
    drop(10)
    assert (await recorder.end("short")).dropped == 10
    drop(100)
    assert (await recorder.end("long")).dropped == 111


async def test_a_session_after_another_has_only_its_own(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    await recorder.begin("one", [target.pid], tmp_path / "one")
    await recorded(tmp_path / "one", len)
    await recorder.end("one")
    with started() as other:
        assert await recorder.begin("two", [other.pid], tmp_path / "two") == ""
        await recorded(tmp_path / "two", lambda records: len(records) > 100)
        assert (await recorder.end("two")).count > 100
        other.kill()
    assert {record.pid for record in switch_records.parse((tmp_path / "two").read_bytes())} == {other.pid}


async def test_a_file_that_cannot_be_written_is_a_reason_and_no_obstacle(
    recorder: SwitchRecorder, target: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert "absent" in await recorder.begin("one", [target.pid], tmp_path / "absent" / "one")
    assert await recorder.begin("two", [target.pid], tmp_path / "two") == ""
    await recorded(tmp_path / "two", len)
    assert (await recorder.end("two")).unavailable == ""


async def test_a_program_that_was_not_built_is_named(tmp_path: Path) -> None:
    recorder = SwitchRecorder(tmp_path / "absent.bpf.o")
    assert not await recorder.prepare()
    assert "absent.bpf.o" in recorder.unavailable and recorder.fix == "make setup"
    assert await recorder.begin("one", [1], tmp_path / "one") == recorder.unavailable


ASK = """
import asyncio, os, sys
from permille.controller.domain.switches.switch_recorder import SwitchRecorder
if len(sys.argv) > 1:
    os.setgroups([])
    os.setuid(int(sys.argv[1]))
async def main():
    recorder = SwitchRecorder()
    print(await recorder.prepare(), recorder.unavailable, recorder.fix, sep="; ")
asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_root_the_reason_and_the_fix_are_named() -> None:
    said = subprocess.run([sys.executable, "-c", ASK, "65534"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.startswith("False; ")
    assert "root" in said or "not built" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to hide a folder")
async def test_without_btf_the_reason_and_the_fix_are_named(recorder: SwitchRecorder) -> None:
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh"]
    done = subprocess.run([*hidden, sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    if "mount" in done.stderr:
        pytest.skip(f"nothing can be hidden here: {done.stderr}")
    assert "btf/vmlinux is missing" in done.stdout and "CONFIG_DEBUG_INFO_BTF" in done.stdout
