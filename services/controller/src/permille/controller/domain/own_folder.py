"""A folder below one that everybody may write into, such as /dev/shm: whoever made it first owns what is in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from permille.mesh.errors import FailedPrecondition


def own_folder(folder: Path) -> None:
    """Makes it for this user alone. Raises `FailedPrecondition` (FOREIGN_FOLDER) where it, or the folder that it is in,
    is another user's or a link; folders in which nobody can replace what is another's (sticky) may be anybody's.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for one in (folder, folder.parent):
        found = one.lstat()
        if found.st_mode & stat.S_ISVTX:
            continue
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise FailedPrecondition(
                f"{one} belongs to the user {found.st_uid}, who could read and replace what is recorded there",
                reason="FOREIGN_FOLDER",
                help=f"remove it, or name another folder: controller.vpt_dir (now {folder})",
                metadata={"folder": str(one), "uid": str(found.st_uid)},
            )
