"""Files and folders that options name: refused before the recording is read, which may take long."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from permille.mesh.errors import DataLoss, InvalidArgument, NotFound, PermilleError, PermissionDenied
from permille.mesh.exhausted import exhausted

# As `ptcore` divides it (`capture/src/options.rs`).
_IMAGE = re.compile(r"(?P<file>.+?)(?::(?:0[xX][0-9a-fA-F]+|[0-9]+)){1,3}", re.DOTALL)
# Nothing can be at such a path.
_NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


def check_file(option: str, file: Path, what: str) -> None:
    """`what`: what the option wants. Nothing is opened that could wait for a writer.

    Raises `NotFound`, `PermissionDenied`, `InvalidArgument` for a folder, a pipe or a device.
    """
    try:
        kind = file.stat().st_mode
        if stat.S_ISREG(kind):
            file.open("rb").close()
    except OSError as error:
        raise unreadable(file, error) from None
    if stat.S_ISDIR(kind):
        raise folder_for_file(option, file, what)
    if not stat.S_ISREG(kind):
        raise InvalidArgument(
            f"{option}: {file} is a pipe or a device",
            reason="NO_FILE",
            help=f"give a regular file: {what}",
            metadata={"file": str(file), "option": option},
        )


def check_image(image: str) -> None:
    """The file of an `--image`; what is none is left to who reads it. Raises as `check_file`."""
    try:
        image.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"--image: {image!r} is no UTF-8",
            reason="NOT_UTF8",
            help="give a link to the file that has a name in UTF-8: ln -s FILE code.bin",
            metadata={"value": image},
        ) from None
    if found := _IMAGE.fullmatch(image):
        check_file("--image", Path(found["file"]), "the one with the code that ran")


def check_folder(option: str, folder: Path) -> None:
    """Raises `NotFound`, `PermissionDenied`, `InvalidArgument` for what is no folder."""
    metadata = {"folder": str(folder), "option": option}
    try:
        kind = folder.stat().st_mode
    except OSError as error:
        if error.errno in _NOWHERE:
            why = "" if isinstance(error, FileNotFoundError) else f": {error.strerror}"
            raise NotFound(
                f"there is no folder {folder}{why}", reason="NO_SUCH_FOLDER", help="check the path", metadata=metadata
            ) from None
        raise unreadable(folder, error) from None
    if not stat.S_ISDIR(kind):
        raise InvalidArgument(
            f"{option}: {folder} is no folder", reason="NO_FOLDER", help="give the folder it is in", metadata=metadata
        )
    if is_denied(folder):
        raise denied_folder(folder, option=option)


def is_denied(folder: Path) -> bool:
    """Whether what is in it cannot be listed, or not be opened."""
    return not os.access(folder, os.R_OK | os.X_OK)


def denied_folder(folder: Path, **named: str) -> PermissionDenied:
    """`named`: the option that names it."""
    return PermissionDenied(
        f"{folder} may not be read by you",
        reason="FOLDER_DENIED",
        help=f"ask its owner, or: sudo chmod a+rx {folder}",
        metadata={"folder": str(folder), **named},
    )


def folder_for_file(option: str, folder: Path, what: str) -> InvalidArgument:
    """`what`: what the option wants."""
    return InvalidArgument(
        f"{option}: {folder} is a folder",
        reason="FOLDER",
        help=f"give a file: {what}",
        metadata={"file": str(folder), "option": option},
    )


def unreadable(file: Path, error: OSError) -> PermilleError:
    """Why a file that was named cannot be read."""
    metadata = {"file": str(file)}
    if error.errno in _NOWHERE:
        why = "" if isinstance(error, FileNotFoundError) else f": {error.strerror}"
        return NotFound(
            f"there is no file {file}{why}", reason="NO_SUCH_FILE", help="check the path", metadata=metadata
        )
    if isinstance(error, PermissionError):
        return PermissionDenied(
            f"{file} may not be read by you",
            reason="FILE_DENIED",
            help=f"ask its owner, or: sudo chmod a+r {file}",
            metadata=metadata,
        )
    # What Rust hands on has a text alone.
    why = error.strerror or str(error)
    return exhausted("permille", error) or DataLoss(
        f"{file} cannot be read: {why}", reason="FILE_UNREADABLE", metadata=metadata
    )
