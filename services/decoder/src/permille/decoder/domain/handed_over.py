"""Parts that one task makes while another one takes them at its own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from permille.decoder.domain.uninterrupted import end_of

_Part = TypeVar("_Part")
HandOver: TypeAlias = Callable[[_Part], Awaitable[None]]


async def handed_over(work: Callable[[HandOver[_Part]], Coroutine[Any, Any, None]]) -> AsyncGenerator[_Part, None]:
    """The parts that the work hands over, then what it raises. It waits while there is one that nobody has taken.

    Unlike an asynchronous generator's its deadlines hold meanwhile. Who takes no more cancels it and waits for its end.
    """
    parts: asyncio.Queue[_Part | None] = asyncio.Queue()
    room = asyncio.Semaphore(1)

    async def hand_over(part: _Part) -> None:
        await room.acquire()
        parts.put_nowait(part)

    working = asyncio.create_task(work(hand_over))
    working.add_done_callback(lambda _: parts.put_nowait(None))
    try:
        while (part := await parts.get()) is not None:
            room.release()
            yield part
    finally:
        working.cancel()
        await end_of(working)
    working.result()
