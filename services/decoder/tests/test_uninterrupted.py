"""Work that goes on while whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from permille.decoder.domain.uninterrupted import uninterrupted


async def test_who_is_cancelled_is_so_at_the_end_of_the_work_and_hears_nothing_of_its_failure() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    begun, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def failing() -> None:
        begun.set()
        await let_go.wait()
        ended.set()
        raise ValueError("too late")

    waiting = asyncio.create_task(uninterrupted(failing()))
    await begun.wait()
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    let_go.set()
    await asyncio.wait({waiting})
    assert ended.is_set() and waiting.cancelled()
    # Only what nobody holds any more is told of.
    del waiting
    gc.collect()
    assert told == []
