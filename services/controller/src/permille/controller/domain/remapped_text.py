"""Code of a file that a program has copied into memory without one, as for huge pages: it is that file's still."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from permille.controller.domain.mapping import Mapping
from permille.controller.domain.named_file import mapped_file

# Mostly the first one tells.
CHUNK = 1 << 16


def in_files(mapping: Mapping, all_of_process: Iterable[Mapping]) -> Iterator[Mapping]:
    """The mapping as one of each file that is mapped in front of it or behind it, as if both had once been one."""
    if mapping.of_file:
        return
    for other in all_of_process:
        offset = other.offset + mapping.begin - other.begin
        if other.inode and offset >= 0 and (mapping.begin == other.end or mapping.end == other.begin):
            as_file = replace(mapping, offset=offset, inode=other.inode, path=other.path)
            if not as_file.in_memory_only:
                yield as_file


def has_its_bytes(memory: int, mapping: Mapping, root: Path) -> bool:
    """Whether a process's memory is at the mapping what its file has there."""
    try:
        with mapped_file(root, mapping.path) as path, path.open("rb") as file:
            file.seek(mapping.offset)
            for begin in range(mapping.begin, mapping.end, CHUNK):
                size = min(CHUNK, mapping.end - begin)
                if file.read(size) != os.pread(memory, size, begin):
                    return False
    except OSError:
        return False
    return True
