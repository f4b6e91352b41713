"""What an ELF file calls itself and its separate debug file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from elftools.elf.segments import NoteSegment
from permille.mesh.errors import InvalidArgument


@dataclass(frozen=True)
class ElfIdentity:
    """GNU build id in hex ("" when the file has none) and the name in .gnu_debuglink ("" likewise)."""

    build_id: str
    debug_link: str


def identify_elf(path: Path) -> ElfIdentity:
    """Raises `InvalidArgument` when the file is no ELF."""
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            return ElfIdentity(_build_id(elf), _debug_link(elf))
    except (ELFError, ValueError, KeyError, AssertionError) as error:
        raise no_elf(f"this is no ELF file that can be read: {error}") from None


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


def _build_id(elf: ELFFile) -> str:
    segments: list[NoteSegment | NoteSection] = [
        part for part in elf.iter_segments("PT_NOTE") if isinstance(part, NoteSegment)
    ]
    sections = [part for part in elf.iter_sections() if isinstance(part, NoteSection)]
    for part in [*segments, *sections]:
        for note in part.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return str(note["n_desc"])
    return ""


def _debug_link(elf: ELFFile) -> str:
    # GDB manual, "Debugging Information in Separate Files": a file name, zero padded, and its CRC.
    section = elf.get_section_by_name(".gnu_debuglink")
    return "" if section is None else bytes(section.data()).split(b"\0", 1)[0].decode(errors="replace")
