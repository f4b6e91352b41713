"""Signals that mean something else to a piece of work than to the command as a whole."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def heeded(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """In the running loop, as long as the block runs; then each is again what it was.

    Who ignores a signal (nohup(1), a script's `&`) goes on doing so.
    """
    loop = asyncio.get_running_loop()
    before = {number: handler for number in handlers if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        loop.add_signal_handler(number, handlers[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            # The loop itself leaves what Python begins with.
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
