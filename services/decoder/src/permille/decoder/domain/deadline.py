"""A wait with an end, and what is said then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def deadline(within_s: float, error: Callable[[], Exception]) -> AsyncIterator[None]:
    """Cancels what is done in it after so long, and raises the error instead."""
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            yield
    except TimeoutError:
        # A store's own is another matter.
        if not limit.expired():
            raise
        raise error() from None
