"""Standard output and standard error as files that can be full, closed or gone."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from permille.mesh.errors import FailedPrecondition, PermilleError, ResourceExhausted
from permille.mesh.no_room import is_no_room

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def guard_standard_streams() -> None:
    """What cannot be written to standard output raises `ResourceExhausted` or `FailedPrecondition`, once; the rest of
    it is dropped. What cannot be written to standard error is dropped. A reader that is gone is a `BrokenPipeError`.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The place is taken, so that no other file gets the number; writing there says that it is not open.
            os.open(os.devnull, os.O_RDONLY)
    sys.stdout = _text(_Answer(1, "w", closefd=False), sys.stdout, "strict")
    sys.stderr = _text(_Words(2, "w", closefd=False), sys.stderr, "backslashreplace")


def _text(raw: io.FileIO, replaced: TextIO | None, errors: str) -> TextIO:
    if not isinstance(replaced, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=replaced.encoding,
        errors=replaced.errors,
        line_buffering=replaced.line_buffering,
        write_through=replaced.write_through,
    )


class _Answer(io.FileIO):
    _told = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._told:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._told = True
            raise _unwritable(error) from None


class _Words(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes


def _unwritable(error: OSError) -> PermilleError:
    message = f"cannot write standard output: {error.strerror}"
    if is_no_room(error):
        return ResourceExhausted(message, reason="DISK_FULL", help="make room, or write elsewhere")
    return FailedPrecondition(
        message, reason="OUTPUT_FAILED", help="redirect it to a file, or to /dev/null where nobody wants the answer"
    )
