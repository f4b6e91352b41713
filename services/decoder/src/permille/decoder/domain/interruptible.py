"""Work in a thread that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from permille.decoder.domain.uninterrupted import end_of

_Result = TypeVar("_Result")
_AGAIN_S = 0.05


async def interruptible(threads: Executor, interrupt: Callable[[], None], work: Callable[[], _Result]) -> _Result:
    """The result of the work. Who is cancelled meanwhile interrupts it, and is so when its thread has ended."""
    # Not a task, which the end of the loop would cancel, and the thread would go on.
    step = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        # Between two of its statements DuckDB forgets that it was interrupted.
        await end_of(step, meanwhile=interrupt, every_s=_AGAIN_S)
        raise
