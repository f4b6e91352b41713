"""What a process has mapped, as /proc/<pid>/maps tells it (proc_pid_maps(5))."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from permille.controller.domain.file_stamp import FileStamp
from permille.controller.domain.proc_text import lines_of, unescaped

USER_END = 1 << 47
DELETED = " (deleted)"
# vdso(7)
VDSO = "[vdso]"


@dataclass(frozen=True)
class Mapping:
    """`path` "" or in brackets where no file backs it, `inode` 0 likewise.

    `stamp`: what its file was then, None where that is not known; with and without it a mapping is the same.
    """

    begin: int
    end: int
    offset: int
    inode: int
    path: str
    stamp: FileStamp | None = field(default=None, compare=False)

    @property
    def in_memory_only(self) -> bool:
        return not self.path.startswith("/") or self.path.endswith(DELETED)

    @property
    def of_file(self) -> bool:
        return bool(self.inode) or self.path == VDSO

    @property
    def generated(self) -> bool:
        """Memory for what the program writes itself."""
        return self.in_memory_only and not self.of_file

    def same_file(self, other: Mapping) -> bool:
        return (self.path, self.inode) == (other.path, other.inode)

    def overlaps(self, other: Mapping) -> bool:
        return self.begin < other.end and other.begin < self.end

    def beside(self, other: Mapping) -> Iterator[Mapping]:
        """What is left of it where another one came."""
        if not self.overlaps(other):
            yield self
            return
        if self.begin < other.begin:
            yield replace(self, end=other.begin)
        if other.end < self.end:
            yield replace(self, begin=other.end, offset=self.offset + (other.end - self.begin if self.inode else 0))


def parse_maps(text: str) -> Iterator[Mapping]:
    """The executable ones of user code."""
    return (mapping for protection, mapping in parsed(text) if "x" in protection and mapping.end <= USER_END)


def constant(every: Iterable[tuple[str, Mapping]]) -> list[Mapping]:
    """Of those that `parsed` tells, what can be read and not written: as its file has it."""
    return [mapping for protection, mapping in every if "r" in protection and "w" not in protection]


def parsed(text: str) -> Iterator[tuple[str, Mapping]]:
    """All of them, each with what may be done there: `r-xp`."""
    for line in lines_of(text):
        place, protection, offset, _, inode, *path = line.split(None, 5)
        begin, end = (int(number, 16) for number in place.split("-"))
        yield protection, Mapping(begin, end, int(offset, 16), int(inode), unescaped(path[0]) if path else "")
