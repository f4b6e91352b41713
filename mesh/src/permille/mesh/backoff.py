"""Waiting longer and longer between attempts, with jitter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from permille.mesh.errors import ResourceExhausted, Unavailable

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")


class Backoff:
    """Pauses of `first_s`, doubled each time up to `most_s`; each is drawn from the upper half of its range."""

    def __init__(self, first_s: float = 0.1, most_s: float = 5.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    async def pause(self) -> None:
        """Waits, longer than the time before."""
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
        self._next_s = min(self._next_s * 2, self._most_s)

    def reset(self) -> None:
        """Begins again with the shortest pause, after a success."""
        self._next_s = self._first_s


async def until_available(attempt: Callable[[], Awaitable[_T]], backoff: Backoff | None = None) -> _T:
    """Repeats an attempt for as long as it raises `Unavailable`; other errors pass."""
    pauses = backoff or Backoff()
    while True:
        try:
            return await attempt()
        except Unavailable:
            await pauses.pause()


async def until_written(write: Callable[[], Awaitable[_T]]) -> _T:
    """Repeats a write to an etcd that is away or full: what is there already is kept, and somebody makes room."""
    pauses = Backoff()
    while True:
        try:
            return await write()
        except Unavailable:
            pass
        except ResourceExhausted as error:
            _log.warning("cannot write to etcd now", error=error.message, help=error.help)
        await pauses.pause()
