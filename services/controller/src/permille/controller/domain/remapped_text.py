"""Code of a file that a program has copied into memory without one, as for huge pages: it is that file's still."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from permille.controller.domain.mapping import Mapping
from permille.controller.domain.named_file import mapped_file

CHUNK = 1 << 20


def in_its_file(mapping: Mapping, all_of_process: Iterable[Mapping]) -> Mapping | None:
    """The mapping as one of the file that is mapped in front of it and behind it, as if it had once been all one."""
    before = after = None
    for other in all_of_process:
        before = other if other.end == mapping.begin else before
        after = other if other.begin == mapping.end else after
    if mapping.of_file or before is None or after is None or not before.inode or not before.same_file(after):
        return None
    offset = before.offset + mapping.begin - before.begin
    as_file = replace(mapping, offset=offset, inode=before.inode, path=before.path)
    return as_file if after.offset - offset == after.begin - mapping.begin and not as_file.in_memory_only else None


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
