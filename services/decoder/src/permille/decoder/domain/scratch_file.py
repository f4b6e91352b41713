"""A file of some pieces, one behind the other, that vanishes with the process."""

from __future__ import annotations

import tempfile
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from permille.ptcore import Column

# Up to so many bytes are not worth a file.
IN_MEMORY = 8 << 20


class ScratchFile:
    """In `folder` only when it is large. Small ones are put together once: a buffer would be copied while it grows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pieces: list[Column] = []
        self._file: BinaryIO | None = None
        self.size_bytes = 0

    def write(self, piece: Column) -> None:
        """Adds bytes. Raises OSError."""
        self._pieces.append(piece)
        self.size_bytes += len(piece)
        if self.size_bytes > IN_MEMORY:
            if self._file is None:
                self._file = cast(BinaryIO, tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115 - of the caller
            self._file.writelines(self._pieces)
            self._pieces.clear()

    def whole(self) -> BinaryIO:
        """The file, at its beginning; nothing can be added any more."""
        if self._file is None:
            return BytesIO(b"".join(self._pieces))
        self._file.seek(0)
        return self._file
