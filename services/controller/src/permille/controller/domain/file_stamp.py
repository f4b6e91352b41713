"""What tells a file from another one that has its path later: another build of a program, or another version of it.

The number of its inode alone does not: on ext4 the file that is written next has that of the one that was removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class FileStamp:
    """Inode, and when its content was written, in ns."""

    inode: int
    modified_ns: int
    size_bytes: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    def same_content(self, other: FileStamp) -> bool:
        """Without the inode: a copy with the same times is the same, and FUSE may give a file another number."""
        return (self.modified_ns, self.size_bytes) == (other.modified_ns, other.size_bytes)


def stamp_of(path: str, inode: int, roots: Iterable[str]) -> FileStamp | None:
    """Of the file with that inode at an absolute path below the first of these folders ("" for all) that has it there.

    None where none has: it is gone, or the kernel tells of a mapping another number than stat does, as it may on
    overlayfs of a file that was copied up.
    """
    for root in roots:
        try:
            status = os.lstat(root + path)
        except OSError:
            continue
        if status.st_ino == inode:
            return FileStamp.of(status)
    return None
