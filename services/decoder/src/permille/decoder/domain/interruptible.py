"""Work in a thread that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")
_AGAIN_S = 0.05


async def interruptible(interrupt: Callable[[], None], work: Callable[[], _Result]) -> _Result:
    """The result of the work. Who is cancelled meanwhile interrupts it, and is so when its thread has ended."""
    # Not a task, which the end of the loop would cancel, and the thread would go on.
    step = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        while not step.done():
            # Between two of its statements DuckDB forgets that it was interrupted.
            interrupt()
            try:
                await asyncio.wait({step}, timeout=_AGAIN_S)
            except asyncio.CancelledError:
                continue
        # Nobody is left to be told.
        step.exception()
        raise
