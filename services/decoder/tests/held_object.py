"""An object of the store that is read for as long as a test wants."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from permille.mesh.store import ObjectStore


class HeldObject:
    """An object in a folder store whose reader waits in the middle of it for as long as the test wants."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._path = Path(urlsplit(store.url).path) / key
        self._content = self._path.read_bytes() if self._path.exists() else b""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path)
        self._writer = -1

    async def reached(self) -> None:
        """Returns when somebody reads it."""
        async with asyncio.timeout(120):
            while self._writer < 0:
                try:
                    self._writer = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
                except OSError:
                    await asyncio.sleep(0.02)
        os.set_blocking(self._writer, True)

    def reader(self, among: psutil.Process) -> psutil.Process:
        """Which process below `among` reads it."""
        deadline = time.monotonic() + 120
        while True:
            children = among.children(recursive=True)
            found = [child for child in children if self._is_open_in(child)]
            if len(found) == 1:
                return found[0]
            assert time.monotonic() < deadline, f"{found} of {children} read {self._path}"
            time.sleep(0.02)

    def let_go(self) -> None:
        """Its reader reads the content, as everybody does from now on."""
        self.restore()
        os.write(self._writer, self._content)
        self.close()

    def restore(self) -> None:
        """Whoever opens it from now on reads the content; the reader still waits."""
        self._path.unlink(missing_ok=True)
        if self._content:
            self._path.write_bytes(self._content)

    def close(self) -> None:
        """Its reader meets the end at once."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def _is_open_in(self, process: psutil.Process) -> bool:
        mine = os.fstat(self._writer)
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            # Descriptors come and go meanwhile.
            with suppress(OSError):
                if os.path.samestat(link.stat(), mine):
                    return True
        return False
