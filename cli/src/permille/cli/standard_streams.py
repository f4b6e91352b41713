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
    it is dropped. A reader of it that is gone is a `BrokenPipeError`. What cannot be written to standard error is
    dropped. Standard input that is closed is empty.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The place is taken, so that no other file gets the number; writing there says that it is not open.
            os.open(os.devnull, os.O_RDONLY)
    sys.stdout = _text(_Answer(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Words(2, "w", closefd=False), sys.stderr)
    if isinstance(sys.stdin, io.TextIOWrapper):
        # As arguments are: what is no UTF-8 is told where it is sent.
        sys.stdin.reconfigure(errors="surrogateescape")
    else:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process


def nobody_reads() -> None:
    """The interpreter must not try to write the rest of what nobody wants when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _text(raw: io.FileIO, replaced: TextIO | None) -> TextIO:
    # What the encoding does not have, as names of files that are no UTF-8, is written out.
    errors = "backslashreplace"
    if not isinstance(replaced, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors)
    # JSON is UTF-8 in every locale (RFC 8259, 8.1), and has no word for what is written out.
    encoding = "utf-8" if "--json" in sys.argv else replaced.encoding
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors=errors,
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
        except OSError:
            return memoryview(data).nbytes


def _unwritable(error: OSError) -> PermilleError:
    message = f"cannot write standard output: {error.strerror}"
    if is_no_room(error):
        return ResourceExhausted(message, reason="DISK_FULL", help="make room, or write elsewhere")
    return FailedPrecondition(
        message, reason="OUTPUT_FAILED", help="redirect it to a file, or to /dev/null where nobody wants the answer"
    )
