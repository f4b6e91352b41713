"""Processes that tests start, and waiting for what they do."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

BIN = Path(sys.executable).parent
# No assertion: only how long a test waits on a busy machine before it says that something will not come.
PATIENCE_S = 120.0
Process = subprocess.Popen[str]


@contextlib.contextmanager
def child(command: list[str], **options: Any) -> Iterator[Process]:
    """A process that does not outlive the block."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def command_line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def alive(process: psutil.Process) -> bool:
    """Whether it runs; a zombie does not."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def assert_ended(processes: list[psutil.Process]) -> None:
    """Waits until none of them runs, and names those that do not end."""
    deadline = time.monotonic() + 60
    while left := [process for process in processes if alive(process)]:
        if time.monotonic() > deadline:
            pytest.fail(f"still there: {[(process.pid, command_line(process)) for process in left]}")
        time.sleep(0.05)


def await_true(condition: Callable[[], object], timeout_s: float, what: str, *, every_s: float = 0.01) -> None:
    """Polls until the condition holds; fails the test naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s for {what}")
        time.sleep(every_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
