"""One `permille up` for each state folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permille.mesh.errors import FailedPrecondition, PermilleError, PermissionDenied, ResourceExhausted
from permille.mesh.no_room import is_no_room


@contextmanager
def state_lock(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; the kernel gives it back whatever way the process ends.

    Raises `FailedPrecondition` (ALREADY_UP) naming the pid of the holder, `PermissionDenied` for a folder that cannot
    be written.
    """
    file = folder / "up.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(folder, os.pread(descriptor, 32, 0).decode(errors="replace").strip()) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(folder: Path) -> int:
    """The pid of the `permille up` that holds the folder; 0 when none does."""
    try:
        descriptor = os.open(folder / "up.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(written) if written.isdigit() else 0
    finally:
        os.close(descriptor)
    return 0


def _held(folder: Path, pid: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"`permille up` is running on the state folder {folder} (pid {pid or 'unknown'})",
        reason="ALREADY_UP",
        help=f"use that one; end it with `kill {pid or 'PID'}`, or choose another folder with --state-dir",
        metadata={"pid": pid, "state_dir": str(folder)},
    )


def _unusable(folder: Path, error: OSError) -> PermilleError:
    kind = ResourceExhausted if is_no_room(error) else PermissionDenied
    return kind(
        f"the state folder {folder} cannot be used: {error.strerror}",
        reason="STATE_DIR_UNUSABLE",
        help="choose a folder that you can write to, with room, with --state-dir or PERMILLE_STATE_DIR",
        metadata={"state_dir": str(folder)},
    )
