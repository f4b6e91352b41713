"""What the binary repository calls a file, and where its separate debug file is on this machine."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from permille.controller.domain import elf_notes
from permille.controller.domain.elf_notes import DebugLink

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
    build_id, debug_link = elf_notes.names(path)
    if build_id:
        return BinaryIdentity(f"binaries/{build_id}", build_id, debug_file(path, build_id, debug_link, debug_folders))
    return BinaryIdentity(f"binaries/sha256-{sha256(path)}", "", debug_file(path, "", debug_link, debug_folders))


def debug_file(path: Path, build_id: str, debug_link: DebugLink, folders: tuple[Path, ...]) -> Path | None:
    """By build id first, then by the debug link beside the file, in .debug, and below the global folders.

    Without a build id only what stands below the global folders is taken, and only with the link's checksum: the
    program that has it may have made it up.
    """
    candidates = []
    if build_id:
        candidates += [folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug" for folder in folders]
    # It is a file's name and no way to one.
    if (link := debug_link.name) and "/" not in link:
        real = path.resolve()
        if build_id:
            candidates += [real.parent / link, real.parent / ".debug" / link]
        candidates += [folder / real.parent.relative_to("/") / link for folder in folders]
    for candidate in candidates:
        # A link may name the very file it is in.
        if candidate.is_file() and not candidate.samefile(path) and belongs(candidate, build_id, debug_link):
            return candidate
    return None


def belongs(debug: Path, build_id: str, debug_link: DebugLink) -> bool:
    return elf_notes.names(debug)[0] == build_id if build_id else crc32(debug) == debug_link.checksum


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def crc32(path: Path) -> int:
    return reduce(lambda checksum, chunk: zlib.crc32(chunk, checksum), chunks(path), 0)


def chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
