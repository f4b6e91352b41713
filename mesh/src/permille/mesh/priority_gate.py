"""Who is let in next: the highest priority of those that wait, and among equals who came first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count


class PriorityGate:
    """At most `room()` are inside at once; when the room grows, `look` lets those in who now fit."""

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self._inside = 0
        self._arrivals = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def turn(self, priority: int = 0) -> AsyncIterator[None]:
        """Waits to be let in, and leaves at the end."""
        await self._enter(priority)
        try:
            yield
        finally:
            self._inside -= 1
            self.look()

    def look(self) -> None:
        """Lets in who fits."""
        while self._waiting and self._inside < self._room():
            _, _, admitted = heapq.heappop(self._waiting)
            if not admitted.done():
                self._inside += 1
                admitted.set_result(None)

    async def _enter(self, priority: int) -> None:
        admitted = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._arrivals), admitted))
        self.look()
        try:
            await admitted
        except asyncio.CancelledError:
            # Let in and cancelled in the same moment.
            if admitted.done() and not admitted.cancelled():
                self._inside -= 1
                self.look()
            raise
