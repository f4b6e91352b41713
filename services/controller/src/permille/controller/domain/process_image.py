"""What code a process has while it is recorded: as /proc shows it now and then, and as the kernel tells it.

Where a mapping comes to a place that nothing was at before, it is as if it had always been there: whatever was executed
there was this. Where one comes to a place that something else was at, that is a change, and it has the time at
which it was told, or seen. Code that no file backs is read when the recording is over. Of an ELF file that is gone, and
of the vDSO, all that is mapped of it is read: so its functions have their names. What was copied out of a file for huge
pages is the file's.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from permille.controller.domain import elf_notes
from permille.controller.domain.jit_files import is_jitdump
from permille.controller.domain.mapping import DELETED, USER_END, VDSO, Mapping, parse_maps, parsed
from permille.controller.domain.recording import ImageChange
from permille.controller.domain.remapped_text import has_its_bytes, in_its_file
from permille.mesh.elf_magic import ELF_MAGIC

PROC = Path("/proc")
# Memory that is reserved for generated code, most of it never used.
MOST_CODE_BYTES = 64 << 20


class ProcessImage:
    """One process's. `now`: the TSC."""

    def __init__(self, pid: int, now: Callable[[], int], proc: Path = PROC) -> None:
        self.pid = pid
        self._now = now
        self._folder = proc / str(pid)
        self._there: set[Mapping] = set()
        # Where something was at any time: programs map again and again to the same places.
        self._places: set[tuple[int, int]] = set()
        self._changes: list[ImageChange] = []
        self._seen: list[Mapping] = []
        self._code: dict[Mapping, bytes] = {}
        self._copied: dict[Mapping, Mapping] = {}

    def look(self) -> None:
        """Takes in what is mapped now; nothing where the process is gone."""
        try:
            told = parse_maps((self._folder / "maps").read_text(errors="surrogateescape"))
            now = {mapping for mapping in told if not is_jitdump(mapping.path)}
        except OSError:
            return
        if not now:
            # A process that ends has given its memory up already.
            return
        new = {mapping for mapping in now - self._there if not self._lost_its_file(mapping)}
        self._come(new, self._now)
        self._there = now

    def map(self, mapping: Mapping, tsc: int) -> int:
        """It came at that time, in place of what it covers. How many changes that is: none where it was there."""
        if mapping in self._there or mapping.end > USER_END or is_jitdump(mapping.path):
            return 0
        self._there = {left for other in self._there for left in other.beside(mapping)} | {mapping}
        return self._come([mapping], lambda: tsc)

    def fork(self, parent: ProcessImage, tsc: int) -> int:
        """What another one has is all that it has from that time on. How many changes that is."""
        self._there = set(parent._there)
        return self._come(self._there, lambda: tsc)

    def begin(self) -> None:
        """Another program: nothing is there."""
        self._there = set()

    def read_code(self) -> None:
        """Reads what no file backs: what was generated until now."""
        self.look()
        try:
            told = (self._folder / "maps").read_text(errors="surrogateescape")
            memory = os.open(self._folder / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        every = list(parsed(told))
        constant = [mapping for protection, mapping in every if "r" in protection and "w" not in protection]
        try:
            for mapping in filter(lambda mapping: mapping.in_memory_only, self._there):
                as_file = in_its_file(mapping, (other for _, other in every))
                if as_file is not None and has_its_bytes(memory, as_file, self._folder / "root"):
                    self._copied[mapping] = as_file
                elif mapping.end - mapping.begin <= MOST_CODE_BYTES:
                    code = elf_file(memory, filter(mapping.same_file, constant)) if mapping.of_file else b""
                    self._code[mapping] = code or read_memory(memory, mapping)
        finally:
            os.close(memory)

    def changes(self) -> Iterator[ImageChange]:
        """In the order of their epochs."""
        for change, mapping in zip(self._changes, self._seen, strict=True):
            code = self._code.get(mapping) or (own_vdso(mapping) if mapping.path == VDSO else b"")
            if mapping in self._copied:
                yield replace(change, path=self._copied[mapping].path, offset=self._copied[mapping].offset)
            elif not mapping.in_memory_only:
                yield change
            elif code.startswith(ELF_MAGIC) and mapping.of_file:
                build_id, _ = elf_notes.names_in(io.BytesIO(code))
                yield replace(change, path=mapping.path.removesuffix(DELETED), build_id=build_id, code=code)
            elif code:
                yield replace(change, event="code", path="", size_bytes=len(code), code=code)
            else:
                yield replace(change, path="")

    def _lost_its_file(self, mapping: Mapping) -> bool:
        """Whether it was there before, and its file was removed since: another one may have the name by now."""
        before = replace(mapping, path=mapping.path.removesuffix(DELETED))
        if before == mapping or before not in self._seen:
            return False
        self._seen = [mapping if seen == before else seen for seen in self._seen]
        return True

    def _come(self, mappings: Iterable[Mapping], when: Callable[[], int]) -> int:
        come = sorted(mappings, key=lambda mapping: mapping.begin)
        epoch, tsc = self._changes[-1].epoch if self._changes else 0, 0
        if any(self._was_taken(mapping) for mapping in come):
            epoch, tsc = epoch + 1, when()
        for mapping in come:
            self._places.add((mapping.begin, mapping.end))
            self._seen.append(mapping)
            self._changes.append(
                ImageChange(
                    epoch=epoch,
                    tsc=tsc,
                    event="map",
                    address=mapping.begin,
                    size_bytes=mapping.end - mapping.begin,
                    offset=mapping.offset,
                    path=mapping.path,
                )
            )
        return len(come)

    def _was_taken(self, mapping: Mapping) -> bool:
        place = mapping.begin, mapping.end
        return place in self._places or any(place[0] < end and begin < place[1] for begin, end in self._places)


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
    vdso = [
        mapping for mapping in parse_maps((own / "maps").read_text(errors="surrogateescape")) if mapping.path == VDSO
    ]
    with (own / "mem").open("rb") as memory:
        return b"".join(read_memory(memory.fileno(), mapping) for mapping in vdso)


def read_memory(memory: int, mapping: Mapping) -> bytes:
    """What can be read of it from its beginning."""
    try:
        return os.pread(memory, mapping.end - mapping.begin, mapping.begin)
    except OSError:
        return b""
