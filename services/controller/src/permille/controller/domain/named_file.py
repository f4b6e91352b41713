"""Files that a recorded program names: it can put whatever it likes at their paths, at any time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NotRegularError(FileNotFoundError):
    """A link, a pipe, a device or a folder."""


@contextmanager
def mapped_file(root: Path, path: str) -> Iterator[Path]:
    """The file at an absolute path below a root, as a path of this process that stays the same file.

    No part of it may be a symbolic link: the kernel's name of a mapping has none, so one that is there now leads to
    what was not mapped. Raises OSError, also for what is no regular file.
    """
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        file = regular_below(folder, path)
    finally:
        os.close(folder)
    with _as_path(file) as same:
        yield same


def regular_below(root: int, path: str) -> int:
    """A descriptor of the file at an absolute path below an open folder; see `mapped_file`."""
    *folders, name = path.strip("/").split("/")
    folder = os.dup(root)
    try:
        for part in folders:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        return _regular(name, os.O_NOFOLLOW, folder)
    finally:
        os.close(folder)


@contextmanager
def opened_file(path: Path) -> Iterator[Path]:
    """The file that is at a path now, as one that stays the same file. Raises OSError like `mapped_file`."""
    with _as_path(_regular(str(path))) as same:
        yield same


def _regular(name: str, flags: int = 0, folder: int | None = None) -> int:
    # Whoever opens a pipe waits for its other end, and opening a device does something: it is looked at first.
    place = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise NotRegularError(f"{name} is no regular file")
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)


@contextmanager
def _as_path(file: int) -> Iterator[Path]:
    try:
        yield Path(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
