"""The names that an ELF file bears: its GNU build id, and that of its separate debug file with its checksum.

A library for all of ELF costs a controller 5 MB for as long as it lives, and each binary 20 ms.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from permille.mesh.elf_magic import ELF_MAGIC

# System V ABI, "Note Section"; linux/elf.h: NT_GNU_BUILD_ID of owner "GNU".
NOTE = struct.Struct("<III")
PT_NOTE, SHT_NOTE, NT_GNU_BUILD_ID = 4, 7, 3
# A table of 65,535 sections has 4 MB; a file may say anything.
MOST_BYTES = 16 << 20
DAMAGED = (struct.error, IndexError, OverflowError)


@dataclass(frozen=True)
class Layout:
    """Of one class of ELF, little-endian: where tables are, and of their entries what is needed."""

    header: struct.Struct  # e_phoff, e_shoff, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx
    segment: struct.Struct  # p_type, p_offset, p_filesz
    section: struct.Struct  # sh_name, sh_type, sh_offset, sh_size


LAYOUTS = {
    b"\x01\x01": Layout(struct.Struct("<28xII6xHHHHH"), struct.Struct("<II8xI"), struct.Struct("<II8xII")),
    b"\x02\x01": Layout(struct.Struct("<32xQQ6xHHHHH"), struct.Struct("<I4xQ16xQ"), struct.Struct("<II16xQQ")),
}


def names(path: Path) -> tuple[str, str, int | None]:
    """Build id (hex), and the name and the CRC in .gnu_debuglink; "" and None for what is not there or is damaged.

    Raises OSError.
    """
    with path.open("rb") as file:
        return names_in(file)


def names_in(file: BinaryIO) -> tuple[str, str, int | None]:
    """As `names`, of an open file."""
    head = file.read(64)
    layout = LAYOUTS.get(head[4:6])
    if not head.startswith(ELF_MAGIC) or layout is None:
        return "", "", None
    try:
        build_id = build_id_by_segments(file, head, layout)
    except DAMAGED:
        return "", "", None
    try:
        told, link, checksum = names_by_sections(file, head, layout)
    except DAMAGED:
        return build_id, "", None
    return build_id or told, link, checksum


def build_id_by_segments(file: BinaryIO, head: bytes, layout: Layout) -> str:
    at, _, size, count, *_ = layout.header.unpack_from(head)
    found = entries(file, at, size, count, layout.segment)
    return first_build_id(file, [(offset, length) for kind, offset, length in found if kind == PT_NOTE])


def names_by_sections(file: BinaryIO, head: bytes, layout: Layout) -> tuple[str, str, int | None]:
    _, at, _, _, size, count, strings = layout.header.unpack_from(head)
    table = list(entries(file, at, size, count, layout.section))
    build_id = first_build_id(file, [(offset, length) for _, kind, offset, length in table if kind == SHT_NOTE])
    named = read(file, *table[strings][2:]) if table else b""
    links = (place for name, _, *place in table if named[name:].startswith(b".gnu_debuglink\0"))
    return build_id, *debug_link_in(next((read(file, *place) for place in links), b""))


def debug_link_in(section: bytes) -> tuple[str, int | None]:
    # GDB manual, "Debugging Information in Separate Files": a file name, zero padded, and its CRC.
    link = section.split(b"\0", 1)[0]
    checksum = section[padded(len(link) + 1) :][:4]
    return link.decode(errors="replace"), int.from_bytes(checksum, "little") if len(checksum) == 4 else None


def first_build_id(file: BinaryIO, notes: list[tuple[int, int]]) -> str:
    return next((found for place in notes if (found := build_id_in(read(file, *place)))), "")


def entries(file: BinaryIO, at: int, size: int, count: int, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    table = read(file, at, size * count)
    for index in range(count):
        yield layout.unpack_from(table, index * size)


def read(file: BinaryIO, offset: int, size: int) -> bytes:
    # Behind where a file may end there is no place to go to.
    file.seek(min(offset, file.seek(0, os.SEEK_END)))
    return file.read(min(size, MOST_BYTES))


def build_id_in(notes: bytes) -> str:
    at = 0
    while at + NOTE.size <= len(notes):
        owner_size, size, kind = NOTE.unpack_from(notes, at)
        begin = at + NOTE.size + padded(owner_size)
        if kind == NT_GNU_BUILD_ID and notes[at + NOTE.size :].startswith(b"GNU\0"):
            return notes[begin : begin + size].hex()
        at = begin + padded(size)
    return ""


def padded(size: int) -> int:
    return (size + 3) & ~3
