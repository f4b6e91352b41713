"""Programs of a few instructions, every one of which is known, and the packets of their runs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from permille.decoder.domain.elf_identity import identify_elf

# Two functions, of which one calls the other twice; no library, so that every instruction is known.
SOURCE = """
    .globl _start
    .type _start, @function
_start:
    call outer
    mov $60, %eax
    syscall
    .size _start, . - _start
    .type outer, @function
outer:
    call inner
    call inner
    ret
    .size outer, . - outer
    .type inner, @function
inner:
    test %edi, %edi
    je 1f
    nop
1:  ret
    .size inner, . - inner
"""
# A function that calls another one for as long as it likes, and is called itself by two that called before.
LOOP_SOURCE = """
    .globl _start
    .type _start, @function
_start:
    call middle
    mov $60, %eax
    syscall
    .size _start, . - _start
    .type middle, @function
middle:
    call loop
    ret
    .size middle, . - middle
    .type loop, @function
loop:
    call leaf
    dec %edi
    jne loop
    ret
    .size loop, . - loop
    .type leaf, @function
leaf:
    ret
    .size leaf, . - leaf
"""
CALL_BYTES = 5
INSTRUCTIONS, TICKS = 12, 2000
FIRST_TSC = 1000


@dataclass(frozen=True)
class Program:
    """An ELF file: where its code is mapped, and the packets of one run of it."""

    path: Path
    build_id: str
    address: int
    size: int
    offset: int
    symbols: dict[str, int]

    def mapping(self, **changed: Any) -> dict[str, Any]:
        """Its entry in maps.json."""
        return {
            "epoch": 1,
            "tsc": 0,
            "event": "map",
            "address": self.address,
            "size_bytes": self.size,
            "offset": self.offset,
            "path": "/usr/bin/small",
            "build_id": self.build_id,
            "binary": f"binaries/{self.build_id}",
            "code_offset": 0,
        } | changed

    def packets(self) -> bytes:
        """Intel SDM volume 3, "Packet Definitions": the run takes every branch and compresses its returns."""
        return b"".join(
            [
                bytes.fromhex("0282") * 8,  # PSB
                tsc(FIRST_TSC),
                bytes.fromhex("9901"),  # MODE.Exec: 64 bit
                bytes.fromhex("0223"),  # PSBEND
                b"\xd1" + self.symbols["_start"].to_bytes(8, "little"),  # TIP.PGE with the whole address
                bytes([0b1110]),  # TNT: the branch in inner, its return
                tsc(FIRST_TSC + 500),
                bytes([0b11110]),  # TNT: the same again, the return of outer
                tsc(FIRST_TSC + TICKS),
                b"\x01",  # TIP.PGD without an address: the system call
            ]
        )


def tsc(value: int) -> bytes:
    return b"\x19" + value.to_bytes(7, "little")


def built(folder: Path, text: str) -> Program:
    """The program of some assembly code."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source, path = folder / "small.s", folder / "small"
    source.write_text(text)
    options = ["-g", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=sha1"]
    subprocess.run(["gcc", *options, "-o", str(path), str(source)], check=True)
    with path.open("rb") as file:
        elf = ELFFile(file)
        (code,) = (part for part in elf.iter_segments("PT_LOAD") if part["p_flags"] & 1)
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        symbols = {symbol.name: symbol["st_value"] for symbol in table.iter_symbols() if symbol.name}
        offset = code["p_offset"] & ~0xFFF
        address = code["p_vaddr"] - (code["p_offset"] - offset)
        size = (code["p_memsz"] + code["p_offset"] - offset + 0xFFF) & ~0xFFF
    return Program(path, identify_elf(path).build_id, address, size, offset, symbols)
