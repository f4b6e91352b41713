"""How much of a program an ELF file has, so that one with more takes the place of one with less."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from permille.decoder.domain.elf_identity import told_of
from permille.mesh.errors import InvalidArgument

_DEBUG_INFORMATION = (".debug_info", ".zdebug_info")


@dataclass(frozen=True)
class ElfContent:
    """What is there of the file in memory, of its symbols (how many in .symtab) and of its debug information.

    `missing_bytes`: of its PT_LOAD segments, beyond its end. `is_debug_file`: the code is in another file.
    """

    missing_bytes: int
    is_debug_file: bool
    symbols: int
    has_debug_information: bool

    def require_whole(self) -> None:
        """Raises `InvalidArgument` where bytes are missing that a program has in memory."""
        if self.missing_bytes:
            raise InvalidArgument(
                f"this file is cut off: {self.missing_bytes:,} bytes of what programs have of it in memory are behind"
                " its end",
                reason="BINARY_CUT_OFF",
                help="copy it again from where it ran, whole: `readelf -lW FILE` shows how far its LOAD segments reach",
                metadata={"missing_bytes": str(self.missing_bytes)},
            )

    def adds_to(self, stored: ElfContent, *, debug: bool) -> bool:
        """Whether it has what the stored file of the same build has, and more. Of `debug` files symbols alone count."""
        if not debug and self._contents != stored._contents:
            return self._contents > stored._contents
        more = (self.symbols, self.has_debug_information) != (stored.symbols, stored.has_debug_information)
        return more and self.symbols >= stored.symbols and self.has_debug_information >= stored.has_debug_information

    def has_all(self, *, debug: bool) -> bool:
        """Whether another file of the same build can hardly have more."""
        return self.symbols > 0 and self.has_debug_information and (debug or self._contents == (True, 0))

    @property
    def _contents(self) -> tuple[bool, int]:
        return not self.is_debug_file, -self.missing_bytes


def elf_content(path: Path) -> ElfContent:
    """Raises `InvalidArgument` when the file is no ELF."""
    return told_of(path, partial(_content, size=path.stat().st_size))


def _content(elf: ELFFile, size: int) -> ElfContent:
    loads = [(load["p_offset"], load["p_filesz"]) for load in elf.iter_segments("PT_LOAD")]
    code, symbols, has_debug_information = [], 0, False
    for section in elf.iter_sections():
        is_there = section["sh_type"] != "SHT_NOBITS" and section["sh_offset"] + section["sh_size"] <= size
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and section["sh_size"]:
            code.append(section["sh_type"])
        elif section["sh_type"] == "SHT_SYMTAB" and is_there:
            symbols += section["sh_size"] // section["sh_entsize"] if section["sh_entsize"] else 0
        elif section.name in _DEBUG_INFORMATION and is_there:
            has_debug_information = True
    return ElfContent(
        missing_bytes=sum(max(0, min(length, offset + length - size)) for offset, length in loads),
        # As `objcopy --only-keep-debug` leaves it: it has the sections of the program, without what was in them.
        is_debug_file=bool(code) and set(code) == {"SHT_NOBITS"},
        symbols=symbols,
        has_debug_information=has_debug_information,
    )
