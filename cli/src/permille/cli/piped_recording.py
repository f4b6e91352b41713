"""Recordings that come through a pipe. What is wanted of one lies anywhere in it: all of it becomes a file first."""

from __future__ import annotations

import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from permille.mesh.errors import InvalidArgument, ResourceExhausted

_PIECE_BYTES = 1 << 20

# What tells a folder's recording and is written last, as `ptcore` looks for it (`capture/src/open.rs`).
_DESCRIBING = ("trace.json", "data", "manifest.json", "pt.bin")


@contextmanager
def regular_file(given: Path) -> Iterator[Path]:
    """The recording as a file or a folder; what a pipe or standard input (`-`) gives as a link to a file without a
    name, as long as the block runs.

    Raises `InvalidArgument` for what is neither, `ResourceExhausted` where it has no room, `OSError` as reading does.
    """
    file = _place(given)
    kind = file.stat().st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        yield file
    elif stat.S_ISFIFO(kind):
        with file.open("rb") as pipe, _copy(pipe, given) as copy, tempfile.TemporaryDirectory() as folder:
            # Streams are called as their file.
            named = Path(folder) / file.name
            named.symlink_to(f"/proc/self/fd/{copy.fileno()}")
            yield named
    else:
        raise InvalidArgument(
            f"{given} is neither a file nor a pipe",
            reason="NO_FILE",
            help="save the recording to a file, and give that",
            metadata={"file": str(given)},
        )


def written_ns(given: Path) -> int:
    """When the recording was last written, in unix ns; what came through a pipe, or is of the future, was now."""
    # A folder was changed last when the first file was made in it.
    found = describing(given).stat()
    return time.time_ns() if stat.S_ISFIFO(found.st_mode) else min(found.st_mtime_ns, time.time_ns())


def describing(given: Path) -> Path:
    """The file that tells a folder's recording, or the file itself."""
    place = _place(given)
    within = (place / name for name in _DESCRIBING)
    return next((file for file in within if file.is_file()), place)


def _place(given: Path) -> Path:
    return Path("/dev/stdin") if str(given) == "-" else given


def _copy(pipe: IO[bytes], given: Path) -> IO[bytes]:
    try:
        copy = tempfile.TemporaryFile(prefix="permille-piped-")  # noqa: SIM115 - of the caller
    except OSError as error:
        raise _no_room(given, error) from None
    while piece := pipe.read(_PIECE_BYTES):
        try:
            copy.write(piece)
            copy.flush()
        except OSError as error:
            raise _no_room(given, error) from None
    return copy


def _no_room(given: Path, error: OSError) -> ResourceExhausted:
    folder = tempfile.tempdir or "the folder for temporary files"
    return ResourceExhausted(
        f"{given} comes through a pipe and finds no room in {folder}: {error.strerror}",
        reason="DISK_FULL",
        help="make room there, name another folder with TMPDIR, or save the recording to a file and give that",
        metadata={"file": str(given), "folder": folder},
    )
