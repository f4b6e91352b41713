"""The private etcd of a state folder, kept running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from permille.cli.supervision.events import Event, Happened
from permille.cli.supervision.supervised import ended_text, rotate
from permille.mesh.backoff import Backoff
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import PermilleError


class PrivateEtcd:
    """Starts again on the same port, with what it had, whenever it ends by itself."""

    def __init__(self, folder: Path, tell: Callable[[Event], None]) -> None:
        self._etcd = EmbeddedEtcd(folder)
        self._tell = tell
        self._stopping = False

    async def start(self, timeout_s: float = 30) -> str:
        """The endpoint. Raises `Unavailable` when it does not come up, `FailedPrecondition` without a binary."""
        rotate(self._etcd.folder / "etcd.log")
        endpoint = await self._etcd.start(timeout_s=timeout_s)
        pid = self._etcd.process.pid if self._etcd.process else 0
        self._tell(Event(Happened.STARTED, "etcd", pid, endpoint))
        return endpoint

    async def run(self) -> None:
        """Waits for ends and starts it again; returns when `stop` was called."""
        backoff = Backoff(0.2, 10.0)
        while True:
            exit_code = await self._etcd.wait()
            if self._stopping:
                return
            self._tell(Event(Happened.ENDED, "etcd", detail=ended_text(exit_code)))
            while not self._stopping:
                await backoff.pause()
                with contextlib.suppress(PermilleError):
                    await self.start()
                    backoff.reset()
                    break

    async def stop(self) -> None:
        """Ends it."""
        self._stopping = True
        await self._etcd.stop()
        await asyncio.sleep(0)
