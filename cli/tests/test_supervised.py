"""One supervised process: what it leaves behind when it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from permille.cli.supervision.events import Event, Happened
from permille.cli.supervision.supervised import Supervised

from .conftest import await_true, runs

# Semaphores as those of worker processes have, which hold on to nothing that the kernel takes back.
KILLED = """
import multiprocessing, os, signal, sys, time
child = os.fork() if sys.argv[2] == "stubborn" else 1
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
lock = multiprocessing.get_context("spawn").Lock()
with open(sys.argv[1], "a") as told:
    told.write(f"{lock._semlock.name} {child}\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


async def killed_twice(folder: Path, how: str) -> list[list[str]]:
    told, ended = folder / "told", asyncio.Event()
    ends: list[Event] = []

    def tell(event: Event) -> None:
        if event.happened == Happened.ENDED:
            ends.append(event)
            if len(ends) == 2:
                ended.set()

    argv = [sys.executable, "-c", KILLED, str(told), how]
    supervised = Supervised("killed", argv, folder / "killed.log", tell)
    running = asyncio.create_task(supervised.run())
    async with asyncio.timeout(60):
        await ended.wait()
    await supervised.stop(10)
    await running
    return [line.split() for line in told.read_text().splitlines()]


async def test_a_killed_process_leaves_no_semaphores_behind(tmp_path: Path) -> None:
    for name, _ in await killed_twice(tmp_path, "alone"):
        assert not Path(f"/dev/shm/sem.{name.removeprefix('/')}").exists()


async def test_what_a_killed_process_leaves_is_killed_too(tmp_path: Path) -> None:
    left = [int(child) for _, child in await killed_twice(tmp_path, "stubborn")]
    # The kernel ends them when it comes to it.
    await_true(lambda: not any(map(runs, left)), 60, f"the end of {left}")
