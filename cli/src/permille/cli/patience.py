"""Asking again while nobody answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from permille.mesh.backoff import Backoff
from permille.mesh.errors import Code, PermilleError

AWAY = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
_Result = TypeVar("_Result")
Attempt = Callable[[], Awaitable[_Result]]


class Patience:
    """Up to `most_s` for each call from its first failure on; `away` is told why nobody answers now."""

    def __init__(self, most_s: float, away: Callable[[PermilleError], None]) -> None:
        self.most_s = most_s
        self.away = away

    async def until_answered(self, attempt: Attempt[_Result]) -> _Result:
        """The answer of what may be asked more than once. Raises what the last attempt raised."""
        backoff = Backoff(0.2, 2.0)
        first_failed: float | None = None
        while True:
            try:
                return await attempt()
            except PermilleError as error:
                now = time.monotonic()
                first_failed = now if first_failed is None else first_failed
                if error.code not in AWAY or now - first_failed > self.most_s:
                    raise
                self.away(error)
            await backoff.pause()
