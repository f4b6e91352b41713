"""What the binary repository calls a file, and where its separate debug file is on this machine."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain import elf_notes

DEBUG_FOLDERS = (Path("/usr/lib/debug"),)
CHUNK = 1 << 20


@dataclass(frozen=True)
class BinaryIdentity:
    """`key` in the object store, build id (hex, "" when the file has none), and the debug file found here."""

    key: str
    build_id: str
    debug: Path | None

    @property
    def debug_key(self) -> str:
        return f"{self.key}.debug"


def identify(path: Path, debug_folders: tuple[Path, ...] = DEBUG_FOLDERS) -> BinaryIdentity:
    """Raises OSError when the file cannot be read; a file that is no ELF is named by its content."""
    build_id, debug_link, checksum = elf_notes.names(path)
    debug = debug_file(path, build_id, debug_link, checksum, debug_folders)
    return BinaryIdentity(f"binaries/{build_id or f'sha256-{sha256(path)}'}", build_id, debug)


def debug_file(
    path: Path, build_id: str, debug_link: str, checksum: int | None, folders: tuple[Path, ...]
) -> Path | None:
    """By build id first, then by the debug link beside the file, in .debug, and below the global folders.

    Without a build id the link's checksum says whose a debug file is, and the program may have made it up: only what
    stands below the global folders is taken.
    """
    candidates = []
    if build_id:
        candidates += [folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug" for folder in folders]
    # It is a file's name; the program that has it may have made it up.
    if debug_link and "/" not in debug_link:
        real = path.resolve()
        if build_id:
            candidates += [real.parent / debug_link, real.parent / ".debug" / debug_link]
        candidates += [folder / real.parent.relative_to("/") / debug_link for folder in folders]
    for candidate in candidates:
        # A link may name the very file it is in.
        if not candidate.is_file() or candidate.samefile(path):
            continue
        if elf_notes.names(candidate)[0] == build_id if build_id else crc32(candidate) == checksum:
            return candidate
    return None


def crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
