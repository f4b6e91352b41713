"""What an ELF file calls itself and its separate debug file."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar, cast

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from elftools.elf.segments import NoteSegment
from permille.mesh.errors import InvalidArgument

_Told = TypeVar("_Told")
# What pyelftools raises where a file is damaged.
_UNREADABLE = (ELFError, ValueError, LookupError, AssertionError, AttributeError, TypeError, OverflowError, OSError)
# By class, of the file's header: e_shoff, and e_shnum with e_shstrndx (System V ABI, "ELF Header").
_SECTION_FIELDS = {1: ((0x20, 0x24), (0x30, 0x34)), 2: ((0x28, 0x30), (0x3C, 0x40))}


@dataclass(frozen=True)
class ElfIdentity:
    """GNU build id in hex ("" when the file has none), and what .gnu_debuglink says: name ("" likewise), checksum."""

    build_id: str
    debug_link: str
    debug_checksum: int | None = None


def identify_elf(path: Path) -> ElfIdentity:
    """Raises `InvalidArgument` when the file is no ELF.

    One whose section headers are damaged is what its segments say.
    """
    return told_of(path, _identity)


def told_of(path: Path, tell: Callable[[ELFFile], _Told]) -> _Told:
    """What `tell` says of the file, without its sections where those are damaged. Raises as `identify_elf`."""
    with path.open("rb") as file:
        try:
            return tell(ELFFile(file))
        except _UNREADABLE as error:
            damage = error
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as private:
                return tell(ELFFile(_without_sections(private)))
        except _UNREADABLE:
            raise no_elf(f"this is no ELF file that can be read: {damage}") from None


def no_elf(what: str) -> InvalidArgument:
    """The refusal of a file."""
    return InvalidArgument(
        what,
        reason="NOT_AN_ELF",
        help="upload the program, the shared library or the debug file itself, not compressed",
    )


def file_sha256(path: Path) -> str:
    """In hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _identity(elf: ELFFile) -> ElfIdentity:
    return ElfIdentity(_build_id(elf), *_debug_link(elf))


def _without_sections(private: mmap.mmap) -> IO[bytes]:
    for first, end in _SECTION_FIELDS.get(private[4], ()):
        private[first:end] = bytes(end - first)
    return cast("IO[bytes]", private)


def _build_id(elf: ELFFile) -> str:
    segments: list[NoteSegment | NoteSection] = [
        part for part in elf.iter_segments("PT_NOTE") if isinstance(part, NoteSegment)
    ]
    sections = [part for part in elf.iter_sections() if isinstance(part, NoteSection)]
    for part in [*segments, *sections]:
        # What is cut off may be behind the note that is looked for.
        with suppress(*_UNREADABLE):
            for note in part.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"])
    return ""


def _debug_link(elf: ELFFile) -> tuple[str, int | None]:
    # GDB manual, "Debugging Information in Separate Files": a file name, padded with zeros to four bytes, and its CRC.
    section = elf.get_section_by_name(".gnu_debuglink")
    data = b"" if section is None else bytes(section.data())
    name = data.split(b"\0", 1)[0]
    at = len(name) // 4 * 4 + 4
    checksum = int.from_bytes(data[at : at + 4], "little" if elf.little_endian else "big")
    return name.decode(errors="replace"), checksum if name and len(data) >= at + 4 else None
