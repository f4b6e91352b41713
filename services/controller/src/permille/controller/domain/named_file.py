"""Files that a recorded program names: it can put whatever it likes at their paths, at any time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mapped_file(root: Path, path: str) -> Iterator[Path]:
    """The file at an absolute path below a root, as a path of this process that stays the same file.

    No part of it may be a symbolic link: the kernel's name of a mapping has none, so one that is there now leads to
    what was not mapped. Raises OSError, also for what is no regular file.
    """
    *folders, name = path.strip("/").split("/")
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        file = _regular(name, os.O_NOFOLLOW, folder)
    finally:
        os.close(folder)
    with _as_path(file) as same:
        yield same


@contextmanager
def opened_file(path: Path) -> Iterator[Path]:
    """The file that is at a path now, as one that stays the same file. Raises OSError like `mapped_file`."""
    with _as_path(_regular(str(path))) as same:
        yield same


def _regular(name: str, flags: int = 0, folder: int | None = None) -> int:
    # Whoever opens a pipe waits for its other end.
    file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileNotFoundError(f"{name} is no regular file")
    return file


@contextmanager
def _as_path(file: int) -> Iterator[Path]:
    try:
        yield Path(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
