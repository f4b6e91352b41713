"""Waiting for what others have and give back by themselves: a node, or a process that is being recorded."""

from __future__ import annotations

import time
from collections.abc import Callable

from permille.mesh.backoff import Backoff


class Turn:
    """Counts from the last change of who has it: a queue that moves is waited for, however long it is."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._pauses = Backoff(0.1, 1.0)
        self._holders: object = None
        self._since_s = clock()

    def may_come(self, holders: object) -> bool:
        """False when the same have had what is waited for all of `patience_s`; `holders`: who has what."""
        if holders != self._holders:
            self._holders, self._since_s = holders, self._clock()
        return self._clock() - self._since_s <= self._patience_s

    async def pause(self) -> None:
        """Until it may be looked again."""
        await self._pauses.pause()
