"""Files that a command writes: whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import AsyncIterable, Iterable
from contextlib import suppress
from pathlib import Path

from permille.mesh.errors import InvalidArgument, NotFound, PermilleError, PermissionDenied, ResourceExhausted
from permille.mesh.exhausted import exhausted
from permille.mesh.no_room import is_no_room


def write_file(file: Path, pieces: Iterable[bytes]) -> int:
    """Writes the pieces in the place of `file`; their size in bytes.

    Raises `NotFound` for a missing folder, `InvalidArgument` where there is a folder, `PermissionDenied`,
    `ResourceExhausted` for a full disk.
    """
    draft = Draft(file)
    with draft:
        for piece in pieces:
            draft.write(piece)
    return draft.size_bytes


async def write_file_from(file: Path, pieces: AsyncIterable[bytes]) -> int:
    """As `write_file`, from pieces that arrive."""
    draft = Draft(file)
    with draft:
        async for piece in pieces:
            draft.write(piece)
    return draft.size_bytes


class Draft:
    """A file beside the wanted one, which takes its place when the block ends well and vanishes otherwise.

    A pipe or a device is written to as it is.
    """

    def __init__(self, file: Path) -> None:
        self.size_bytes = 0
        self._file = file
        self._descriptor = -1
        self._draft: Path | None = None

    def __enter__(self) -> Draft:
        try:
            if _is_written_to(self._file):
                self._descriptor = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
                return self
            # What a link points to is replaced, the link stays.
            self._file = self._file.resolve()
            self._descriptor, name = tempfile.mkstemp(prefix=".permille-", dir=self._file.parent)
        except OSError as error:
            raise _cannot_write(self._file, error) from None
        self._draft = Path(name)
        return self

    def write(self, piece: bytes) -> None:
        """Raises `ResourceExhausted` for a full disk, `BrokenPipeError` when nobody reads any more."""
        view = memoryview(piece)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _cannot_write(self._file, error) from None
        self.size_bytes += len(piece)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        os.close(self._descriptor)
        if self._draft is None:
            return
        if kind is not None:
            with suppress(OSError):
                self._draft.unlink()
            return
        umask = os.umask(0)
        os.umask(umask)
        self._draft.chmod(0o666 & ~umask)
        try:
            self._draft.replace(self._file)
        except OSError as error:
            self._draft.unlink()
            raise _cannot_write(self._file, error) from None


def _is_written_to(file: Path) -> bool:
    try:
        kind = file.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def _cannot_write(file: Path, error: OSError) -> PermilleError:
    message = f"cannot write {file}: {error.strerror}"
    metadata = {"file": str(file)}
    if is_no_room(error):
        return ResourceExhausted(message, reason="DISK_FULL", help="make room, or name another file", metadata=metadata)
    if lack := exhausted("permille", error):
        return lack
    if error.errno == errno.ENAMETOOLONG:
        return InvalidArgument(message, reason="OUTPUT_NAME", help="choose a shorter name", metadata=metadata)
    if error.errno == errno.EISDIR:
        return InvalidArgument(
            message, reason="OUTPUT_IS_FOLDER", help=f"name a file in it: {file / 'NAME'}", metadata=metadata
        )
    # Folders of the kernel's (/proc) say so, too, of what they do not take.
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not file.parent.is_dir():
        return NotFound(
            message, reason="OUTPUT_FOLDER", help=f"make the folder: mkdir -p {file.parent}", metadata=metadata
        )
    return PermissionDenied(message, reason="OUTPUT_DENIED", help="choose a file you may write", metadata=metadata)
