"""Threads for calls that may wait long for a server, so that nothing else of the process waits behind them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")


class OwnThreads:
    """At most so many, each begun when it is needed. asyncio's own are some few for the whole process."""

    def __init__(self, most: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """As `asyncio.to_thread`: who is cancelled meanwhile leaves the work to its end."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: context.run(work))
