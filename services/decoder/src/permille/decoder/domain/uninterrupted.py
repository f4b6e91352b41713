"""Work that is not left in its middle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def uninterrupted(work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of the work. Who is cancelled meanwhile is so when the work has come to its end."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue
        raise
