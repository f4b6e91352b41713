"""A folder for temporary files that has no room, or cannot be written any more."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permille.mesh.errors import FailedPrecondition, ResourceExhausted
from permille.mesh.no_room import is_no_room

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def room_in(folder: Path | str) -> Iterator[None]:
    """Raises `ResourceExhausted` (SCRATCH_FULL) for an `OSError` that tells of no room for what is put there.

    And `FailedPrecondition` (STATE_DIR_UNUSABLE) for one that forbids it.
    """
    try:
        yield
    except OSError as error:
        if is_no_room(error):
            raise scratch_full(folder, error.strerror or "no space") from error
        if error.errno in _FORBIDDEN and error.filename and Path(error.filename).is_relative_to(folder):
            raise scratch_unusable(folder, error) from error
        raise


def scratch_unusable(folder: Path | str, error: OSError) -> FailedPrecondition:
    """Nothing can be put into `folder`."""
    return FailedPrecondition(
        f"{folder} cannot be used for temporary files: {error.strerror}",
        reason="STATE_DIR_UNUSABLE",
        help="give the user of this process the right to write there and room, or choose another --state-dir of the"
        " decoder, --local-directory of Dask's workers",
        metadata={"folder": str(folder)},
    )


def scratch_full(folder: Path | str, detail: str) -> ResourceExhausted:
    """There is no room in `folder`."""
    return ResourceExhausted(
        f"the disk for temporary files below {folder} is full: {detail}",
        reason="SCRATCH_FULL",
        help="free space there, or give it more: --state-dir of the decoder, --local-directory of Dask's workers",
        metadata={"folder": str(folder)},
        retry_after_s=30,
    )
