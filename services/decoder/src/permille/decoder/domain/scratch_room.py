"""A disk for temporary files that has no room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permille.mesh.errors import ResourceExhausted
from permille.mesh.no_room import is_no_room


@contextmanager
def room_in(folder: Path | str) -> Iterator[None]:
    """Raises `ResourceExhausted` (SCRATCH_FULL) for an `OSError` that tells of no room for what is put there."""
    try:
        yield
    except OSError as error:
        if not is_no_room(error):
            raise
        raise scratch_full(folder, error.strerror or "no space") from error


def scratch_full(folder: Path | str, detail: str) -> ResourceExhausted:
    """There is no room in `folder`."""
    return ResourceExhausted(
        f"the disk for temporary files below {folder} is full: {detail}",
        reason="SCRATCH_FULL",
        help="free space there, or give it more: --state-dir of the decoder, --local-directory of Dask's workers",
        metadata={"folder": str(folder)},
        retry_after_s=30,
    )
