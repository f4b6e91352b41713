"""Turns a writer into a stream of pieces."""

from __future__ import annotations

import io
from typing import Any


class DrainedSink(io.RawIOBase):
    """A file that gives away what was written into it."""

    def __init__(self) -> None:
        super().__init__()
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """All of it."""
        self._written += data
        return len(data)

    @property
    def size(self) -> int:
        """How many bytes nobody has taken yet."""
        return len(self._written)

    def taken(self) -> bytes:
        """What was written since the last time."""
        data = bytes(self._written)
        self._written.clear()
        return data
