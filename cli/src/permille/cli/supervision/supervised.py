"""One process that is started again whenever it ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from permille.cli.supervision.events import Event, Happened
from permille.mesh.backoff import Backoff

# A process that lived so long was well: its next restart is quick again.
_WELL_S = 30.0
_LARGEST_LOG = 16 << 20
# What a process left behind has so long to end.
_LEFT_S = 2.0


class Supervised:
    """A child in a session of its own: a Ctrl-C at the terminal is for the supervisor, which ends it in order.

    When the supervisor dies the kernel sends it SIGTERM (PR_SET_PDEATHSIG, by setpriv(1) of util-linux).
    `again`: how it is started in the place of one that has ended, unless that was started so too and hardly lived.
    """

    def __init__(self, name: str, argv: Sequence[str], log: Path, tell: Callable[[Event], None]) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self.exit_code: int | None = None
        self.again: Sequence[str] = argv
        self._argv = argv
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int:
        """0 while it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def run(self) -> None:
        """Starts it, and again after each end, waiting longer each time; returns when `stop` was called."""
        backoff = Backoff(0.2, 10.0)
        argv = self._argv
        while not self._stopping:
            begun = time.monotonic()
            self.exit_code = await self._run_once(argv)
            if self._stopping:
                return
            self._tell(Event(Happened.ENDED, self.name, detail=ended_text(self.exit_code)))
            was_well = time.monotonic() - begun > _WELL_S
            if was_well:
                backoff.reset()
            argv = self.again if was_well or argv is not self.again else self._argv
            await backoff.pause()
            self.restarts += 1

    async def _run_once(self, argv: Sequence[str]) -> int:
        rotate(self.log)
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *dies_with_parent(),
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._process = process
        self._tell(Event(Happened.STARTED, self.name, process.pid))
        exit_code = await process.wait()
        # Workers that it left behind would go on with what its successor begins anew.
        await end_group(process.pid)
        return exit_code

    async def stop(self, grace_s: float) -> None:
        """Asks it to drain, and kills it and all that it started when it has not ended after `grace_s`."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            self._tell(Event(Happened.KILLED, self.name, process.pid, f"did not end within {grace_s:g} s"))
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Ends it and its children at once."""
        self._stopping = True
        if self._process is not None:
            kill_group(self._process.pid)


async def end_group(leader: int) -> None:
    """Ends what is left of the session that `leader` began.

    Asked first: Python's resource tracker ignores SIGTERM and ends by itself, when it has removed the semaphores of a
    process that was killed from /dev/shm.
    """
    deadline = time.monotonic() + _LEFT_S
    asked = _signalled(leader, signal.SIGTERM)
    while asked and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
        asked = _signalled(leader, 0)
    kill_group(leader)


def kill_group(leader: int) -> None:
    """SIGKILL to every process of the session that `leader` began."""
    _signalled(leader, signal.SIGKILL)


def _signalled(leader: int, number: int) -> bool:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def ended_text(exit_code: int) -> str:
    """How a process ended, in words."""
    if exit_code < 0:
        try:
            return f"killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"killed by signal {-exit_code}"
    return f"exit code {exit_code}"


def dies_with_parent() -> list[str]:
    """What to put before a command so that it gets SIGTERM when its starter is gone."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def rotate(log: Path) -> None:
    """Keeps one older log beside the present one, so that a folder does not grow for ever."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(OSError):
        if log.stat().st_size > _LARGEST_LOG:
            log.replace(log.with_suffix(".log.1"))
