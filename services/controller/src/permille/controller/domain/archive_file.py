"""One file of a session's archive, as it is written: raw, packed, or in place of another at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

COMPRESSION_LEVEL = 3
CHUNK = 1 << 20
SYNC_BYTES = 8 << 20


@dataclass(frozen=True)
class Written:
    """One file of the archive: size and SHA-256 as stored, and those of its content before compression."""

    stored_bytes: int
    stored_sha256: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class PackedFile:
    """A file of the archive that is named by its content; size and SHA-256 before compression."""

    name: str
    size_bytes: int
    sha256: str


class CodeFile:
    """code.bin.zst while it is written: `size` and `digest` of what went in, the same code once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._compressor = zstandard.ZstdCompressor(COMPRESSION_LEVEL).compressobj()
        self._known: dict[bytes, int] = {}
        self.size = 0
        self.digest = hashlib.sha256()

    def append(self, code: bytes) -> int:
        """The offset that the bytes have in the uncompressed file."""
        offset = self._known.setdefault(hashlib.sha256(code).digest(), self.size)
        if offset < self.size:
            return offset
        self._file.write(self._compressor.compress(code))
        self.digest.update(code)
        self.size += len(code)
        return offset

    def __enter__(self) -> CodeFile:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.write(self._compressor.flush())


def write_raw(path: Path, pieces: Iterable[bytes]) -> None:
    """To the disk itself: the memory that the recorder gives back for it is not taken again by the page cache."""
    with path.open("wb") as file:
        waiting = 0
        for piece in pieces:
            file.write(piece)
            waiting += len(piece)
            if waiting >= SYNC_BYTES:
                to_disk(file)
                waiting = 0
        to_disk(file)


def to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fdatasync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK):
            yield piece


def write_compressed(path: Path, pieces: Iterable[bytes]) -> Written:
    digest, stored, size = hashlib.sha256(), hashlib.sha256(), 0
    compressor = zstandard.ZstdCompressor(COMPRESSION_LEVEL).compressobj()
    with path.open("wb") as file:

        def write(packed: bytes) -> None:
            stored.update(packed)
            file.write(packed)

        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            write(compressor.compress(piece))
        write(compressor.flush())
        return Written(file.tell(), stored.hexdigest(), size, digest.hexdigest())


def write_packed(folder: Path, prefix: str, pieces: Iterable[bytes]) -> PackedFile:
    """A file `<prefix>-<SHA-256>.zst` with the pieces. Raises OSError."""
    partial = folder / f"{prefix}.partial"
    written = write_compressed(partial, pieces)
    packed = PackedFile(f"{prefix}-{written.sha256}.zst", written.size_bytes, written.sha256)
    partial.replace(folder / packed.name)
    return packed


def write_whole(path: Path, data: bytes) -> None:
    """The file has its whole content or is not there, also after a power cut."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
