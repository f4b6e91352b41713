"""What stands in a process's memory, and which ELF file that is: of one that is gone, and of the vDSO."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from permille.controller.domain.mapping import VDSO, Mapping, parse_maps
from permille.controller.domain.named_file import opened_file
from permille.controller.domain.proc_text import text_of
from permille.mesh.elf_magic import ELF_MAGIC

PROC = Path("/proc")
# Of one mapping, and of an ELF file all or nothing.
MOST_CODE_BYTES = 64 << 20


def file_without_name(process: Path, memory: int, mappings: Iterable[Mapping]) -> bytes:
    """The ELF file behind all these mappings of it: whole where the kernel lets us open it as theirs, which needs
    CAP_CHECKPOINT_RESTORE (proc_pid_map_files(5)), else as far as it is mapped; nothing where it is none."""
    mapped = list(mappings)
    for mapping in mapped[:1]:
        with suppress(OSError), opened_file(process / f"map_files/{mapping.begin:x}-{mapping.end:x}") as file:
            if file.stat().st_size <= MOST_CODE_BYTES and (whole := file.read_bytes()).startswith(ELF_MAGIC):
                return whole
    return elf_file(memory, mapped)


def elf_file(memory: int, mappings: Iterable[Mapping]) -> bytes:
    """An ELF file as far as it is mapped, each byte in its place; nothing where it is none, or too large."""
    # What was relocated and then locked is the last of it: of a page that is mapped twice the other one is the file's.
    last_first = sorted(mappings, key=lambda mapping: mapping.offset, reverse=True)
    sizes = [mapping.offset + mapping.end - mapping.begin for mapping in last_first]
    if not sizes or last_first[-1].offset or max(sizes) > MOST_CODE_BYTES:
        return b""
    file = bytearray(max(sizes))
    for mapping in last_first:
        part = read_memory(memory, mapping)
        file[mapping.offset : mapping.offset + len(part)] = part
    return bytes(file) if file.startswith(ELF_MAGIC) else b""


def own_vdso(mapping: Mapping) -> bytes:
    """The vDSO of a process that is gone: it is this one's, since the kernel has one for all programs of 64 bits."""
    code = _own_vdso()
    return code if mapping.begin >> 32 and len(code) == mapping.end - mapping.begin else b""


@functools.cache
def _own_vdso() -> bytes:
    own = PROC / "self"
    vdso = [mapping for mapping in parse_maps(text_of(own / "maps")) if mapping.path == VDSO]
    with (own / "mem").open("rb") as memory:
        return b"".join(read_memory(memory.fileno(), mapping) for mapping in vdso)


def read_memory(memory: int, mapping: Mapping, most: int = MOST_CODE_BYTES) -> bytes:
    """What can be read of it from its beginning."""
    try:
        return os.pread(memory, min(mapping.end - mapping.begin, most, MOST_CODE_BYTES), mapping.begin)
    except OSError:
        return b""
