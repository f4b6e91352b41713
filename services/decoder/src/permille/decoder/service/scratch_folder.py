"""A folder for files that nobody needs when the process is gone, however it went."""

from __future__ import annotations

import fcntl
import shutil
from contextlib import suppress
from pathlib import Path

from permille.decoder.domain.scratch_room import scratch_unusable


class ScratchFolder:
    """`path` is this instance's own, below `parent`. Those of dead instances are removed; locks tell who lives."""

    def __init__(self, parent: Path, instance: str) -> None:
        """Raises `FailedPrecondition` for a folder that cannot be written."""
        try:
            self._make(parent, instance)
        except OSError as error:
            raise scratch_unusable(parent, error) from None
        for lock in parent.glob("*.lock"):
            if lock.name != f"{instance}.lock":
                _remove_if_dead(lock)

    def _make(self, parent: Path, instance: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self.path = parent / instance
        self._lock = (parent / f"{instance}.lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()

    def close(self) -> None:
        """Removes everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        Path(self._lock.name).unlink(missing_ok=True)
        self._lock.close()


def _remove_if_dead(lock: Path) -> None:
    with suppress(OSError), lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        lock.unlink()
