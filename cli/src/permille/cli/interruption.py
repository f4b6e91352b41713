"""Ctrl-C, also while the command is still being loaded, and what else asks a command to end."""

from __future__ import annotations

import os
import signal
from types import FrameType

# As `exit_codes.CANCELLED`, which takes longer to load than this may.
_CANCELLED = 130


def end_when_interrupted() -> None:
    """Nothing is done yet, so there is nothing to undo and to tell. Who ignores the signal goes on doing so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interruptible() -> None:
    """From here on an interruption is a `KeyboardInterrupt`, as Python has it.

    So is to be ended (`kill`, timeout(1)) and to lose one's terminal, unless somebody ignores it (nohup(1)): files that
    are half written, and those for a while, are removed.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(_CANCELLED)
