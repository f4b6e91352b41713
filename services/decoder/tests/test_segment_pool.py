"""Work in processes that may die."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import psutil
import pytest
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.workers import WorkerDied

DIES = "__import__('os').kill(__import__('os').getpid(), 9)"
SLEEPS = "__import__('time').sleep(600)"


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


async def test_the_end_of_the_pool_ends_its_workers(pool: SegmentPool[str, object]) -> None:
    workers = {psutil.Process(int(str(await pool.run("__import__('os').getpid()")))) for _ in range(4)}
    running = asyncio.create_task(pool.run(SLEEPS))
    await asyncio.sleep(0.2)
    pool.close()
    await asyncio.gather(running, return_exceptions=True)
    _, alive = psutil.wait_procs(workers, 60)
    assert not alive
