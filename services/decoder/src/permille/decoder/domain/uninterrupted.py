"""Work that is not left in its middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def uninterrupted(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of the work. Who is cancelled meanwhile is so when the work has come to its end."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await end_of(task)
        raise


async def end_of(
    work: asyncio.Future[Any], *, meanwhile: Callable[[], None] = lambda: None, every_s: float | None = None
) -> None:
    """Waits for it, whoever is cancelled; `meanwhile` is called first and then every so many seconds.

    How it ended need not interest anybody: what it raised is no error in the log.
    """
    while not work.done():
        meanwhile()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work}, timeout=every_s)
    if not work.cancelled():
        work.exception()
