"""How far a decode is, as its operation tells it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from permille.mesh.errors import PermilleError

# It goes into etcd: not more often than anybody looks.
_PAUSE_S = 0.25


class DecodeProgress:
    """Over all attempts: never less than it was. `tell` gets the bytes that are decoded, all, and what is waited for.

    `begun_at` of `total`: bytes that were told by a process that died.
    """

    def __init__(self, tell: Callable[[int, int, str], Awaitable[None]], *, begun_at: int = 0, total: int = 0) -> None:
        self._tell = tell
        self.begun = self.moved = time.monotonic()
        self._shown = 0.0
        self._most = self._told = begun_at
        self._total = total
        self._waiting = ""
        self._later: asyncio.Task[None] | None = None

    async def moved_to(self, done: int, total: int) -> None:
        """So many bytes are decoded; told now, or soon where something was told just before."""
        self._total = total
        self._most = min(self._most, total)
        if done > self._most:
            self._most, self.moved = done, time.monotonic()
        wait_s = 0 if self._most == total else self._shown + _PAUSE_S - time.monotonic()
        if wait_s <= 0:
            await self._show()
        elif self._later is None or self._later.done():
            # The next part may take long.
            self._later = asyncio.create_task(self._show_after(wait_s))

    async def waits(self, why: str) -> None:
        """It does not go on, until `goes_on`."""
        if why != self._waiting:
            self._waiting = why
            await self._show()

    async def goes_on(self) -> None:
        """What was waited for is there."""
        await self.waits("")

    async def end(self) -> None:
        """Nothing more is told."""
        if self._later is not None:
            self._later.cancel()
            await asyncio.gather(self._later, return_exceptions=True)

    async def _show_after(self, wait_s: float) -> None:
        # Also of parts that end while this is told.
        while self._told < self._most:
            await asyncio.sleep(wait_s)
            # What is wrong with etcd the next part's progress finds out.
            with suppress(PermilleError):
                await self._show()
            wait_s = _PAUSE_S

    async def _show(self) -> None:
        self._shown, self._told = time.monotonic(), self._most
        await self._tell(self._most, self._total, self._waiting)
