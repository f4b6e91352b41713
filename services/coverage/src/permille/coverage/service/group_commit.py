"""Many changes at once, written together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class GroupCommit:
    """Writes what has changed; all changes that come while one write is under way share the next one.

    `pause_s`: so long a write waits for others to share it. Where each writes everything, that must grow with what
    there is to write, or many changes cost their square.
    """

    def __init__(self, write: Callable[[], Awaitable[None]], pause_s: float = 0.0) -> None:
        self._write = write
        self._pause_s = pause_s
        self._changes = 0
        self._written = 0
        self._turn = asyncio.Lock()

    async def commit(self) -> None:
        """Returns when everything changed before the call is written. Raises what the write raises."""
        self._changes += 1
        mine = self._changes
        async with self._turn:
            if self._written < mine:
                await asyncio.sleep(self._pause_s)
                covered = self._changes
                await self._write()
                self._written = covered
