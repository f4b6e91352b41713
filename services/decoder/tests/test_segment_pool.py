"""Work in processes that may die."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil
import pytest
from permille.decoder.domain import local_workers
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.lone_process import run_in_lone_process
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.workers import WorkerDied
from permille.mesh.errors import Unavailable

DIES = "__import__('os').kill(__import__('os').getpid(), 9)"
SLEEPS = "__import__('time').sleep(600)"
# Loads here, and ends every other process.
NEEDS_THIS_PROCESS = """
import os
if os.getpid() != {pid}:
    os.kill(os.getpid(), 9)
def work(task):
    return task
"""
PIDS = Path("/sys/fs/cgroup/pids")
# With room for so many more threads than there are at first, then for any number.
SHORT_OF_THREADS = """
import asyncio, pathlib, sys
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.segment_pool import SegmentPool
from permille.mesh.errors import Unavailable

group = pathlib.Path(sys.argv[1])

async def main():
    pool = SegmentPool(eval, LocalWorkers(2))
    (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + int(sys.argv[2])))
    found = await asyncio.gather(*(pool.run(str(number)) for number in range(4)), return_exceptions=True)
    (group / "pids.max").write_text("max")
    found += await asyncio.gather(*(pool.run(str(number)) for number in range(4)))
    print(*(one.reason if isinstance(one, Unavailable) else one for one in found))
    pool.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def pool() -> Iterator[SegmentPool[str, object]]:
    pool: SegmentPool[str, object] = SegmentPool(eval, LocalWorkers(2))
    yield pool
    pool.close()


async def test_results_and_errors_come_back(pool: SegmentPool[str, object]) -> None:
    assert await asyncio.gather(*(pool.run(f"{number} * 2") for number in range(10))) == list(range(0, 20, 2))
    with pytest.raises(ZeroDivisionError):
        await pool.run("1 / 0")
    assert await pool.run("__import__('os').getpid()") != os.getpid()


async def test_a_task_that_kills_its_worker_costs_itself_only(pool: SegmentPool[str, object]) -> None:
    tasks = [DIES if number in (3, 7) else f"{number}" for number in range(10)]
    results = await asyncio.gather(*(pool.run(task) for task in tasks), return_exceptions=True)
    for number, result in enumerate(results):
        if number in (3, 7):
            assert isinstance(result, WorkerDied)
        else:
            assert result == number
    assert await pool.run("1 + 1") == 2


@pytest.mark.parametrize(
    "error",
    [
        "ValueError(lambda: 'not to be pickled')",
        "__import__('permille.mesh.store.s3_errors', fromlist='S3Error').S3Error('GetObject', 500, '', 'made of more')",
    ],
)
def test_an_error_that_cannot_be_told_is_not_the_end_of_a_lone_process(error: str) -> None:
    with pytest.raises(RuntimeError, match=r"ValueError|S3Error"):
        run_in_lone_process(eval, f"(_ for _ in ()).throw({error})")


def test_a_lone_process_dies_of_its_task_alone() -> None:
    with pytest.raises(WorkerDied):
        run_in_lone_process(eval, DIES)
    for asked in (signal.SIGTERM, signal.SIGINT):
        assert run_in_lone_process(eval, f"__import__('os').kill(__import__('os').getpid(), {asked}) or 5") == 5
    # The first that the kernel ends without memory.
    assert run_in_lone_process(eval, "open('/proc/self/oom_score_adj').read()") == "1000\n"


@pytest.fixture
def needs_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    name = f"needs_{token_hex(4)}"
    (tmp_path / f"{name}.py").write_text(NEEDS_THIS_PROCESS.format(pid=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    work: Callable[[str], str] = importlib.import_module(name).work
    return work


async def test_no_task_is_to_blame_for_a_worker_that_cannot_start(needs_this_process: Callable[[str], str]) -> None:
    pool = SegmentPool(needs_this_process, LocalWorkers(2))
    for alone in (False, True):
        with pytest.raises(Unavailable, match="no worker process can be started") as error:
            await pool.run("task", alone=alone)
        assert error.value.reason == "NO_WORKER"
    pool.close()
    with pytest.raises(Unavailable, match="no worker process can be started"):
        run_in_lone_process(needs_this_process, "task")


@pytest.mark.parametrize("alone", [False, True])
async def test_no_task_is_to_blame_for_a_worker_that_ends_before_it_has_one(
    pool: SegmentPool[str, object], monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    begun = local_workers._begun

    async def and_ended(executor: Any, work: Any) -> None:
        await begun(executor, work)
        for process in executor._processes.values():
            process.kill()
        while not executor._broken:
            await asyncio.sleep(0.01)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(local_workers, "_begun", and_ended)
        with pytest.raises(Unavailable) as error:
            await pool.run("1", alone=alone)
    assert error.value.reason == "NO_WORKER"
    assert await pool.run("1", alone=alone) == 1


@pytest.fixture
def group() -> Iterator[Path]:
    folder = PIDS / f"permille-test-{token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made at {PIDS}: {error}")
    yield folder
    # Workers that were killed are in it until they are gone.
    while (folder / "pids.current").read_text() != "0\n":
        time.sleep(0.05)
    folder.rmdir()


@pytest.mark.parametrize("room", range(7))
def test_where_threads_are_short_workers_do_what_they_can(group: Path, room: int, tmp_path: Path) -> None:
    script = tmp_path / "short_of_threads.py"
    script.write_text(SHORT_OF_THREADS)
    enter = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} {script} {group} {room}"
    done = subprocess.run(["sh", "-c", enter], stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    found = done.stdout.split()
    assert found[4:] == ["0", "1", "2", "3"]
    assert all(one in (str(number), "NO_WORKER") for number, one in enumerate(found[:4]))


async def test_the_end_of_the_pool_ends_its_workers(pool: SegmentPool[str, object]) -> None:
    workers = {psutil.Process(int(str(await pool.run("__import__('os').getpid()")))) for _ in range(4)}
    running = asyncio.create_task(pool.run(SLEEPS))
    await asyncio.sleep(0.2)
    pool.close()
    await asyncio.gather(running, return_exceptions=True)
    _, alive = psutil.wait_procs(workers, 60)
    assert not alive
