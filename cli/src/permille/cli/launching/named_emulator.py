"""The emulator under the name of the program that it runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def named_emulator(emulator: Path, program: Path, folder: Path) -> Path:
    """A link to `emulator` in `folder` with the program's name; the emulator itself where no link can be made.

    The kernel names a process after the file that was started (proc(5), comm): `ps`, `pgrep`, thread names and
    `permille trace --name` then show the program's name and not the emulator's.
    """
    link = folder / program.name
    try:
        if link.is_symlink() and link.readlink() == emulator:
            return link
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = folder / f".{program.name}.{os.getpid()}"
        with suppress(FileNotFoundError):
            draft.unlink()
        draft.symlink_to(emulator)
        draft.replace(link)
    except OSError:
        return emulator
    return link if os.access(link, os.X_OK) else emulator
