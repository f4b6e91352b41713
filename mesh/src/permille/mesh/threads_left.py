"""The end of a process whose threads wait for a server that does not answer."""

from __future__ import annotations

import os
import sys
import threading

import structlog

_log = structlog.get_logger(__name__)
PATIENCE_S = 10.0


def end_without_threads(exit_code: int) -> None:
    """Ends the process with that code in `PATIENCE_S` seconds, if it has not ended by then.

    asyncio and `concurrent.futures` wait for all of their threads before a process may end: minutes, where an object
    store hangs. Nobody waits for what these do any more, and it may be cut anywhere, as by SIGKILL.
    """
    timer = threading.Timer(PATIENCE_S, _end, (exit_code,))
    timer.daemon = True
    timer.start()


def _end(exit_code: int) -> None:
    waiting = sorted(thread.name for thread in threading.enumerate() if not thread.daemon)
    _log.warning("ended without its threads", threads=waiting)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
