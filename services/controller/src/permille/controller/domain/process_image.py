"""What code a process has while it is recorded: as /proc shows it now and then, and as the kernel tells it.

Where a mapping comes to a place that nothing was at before, it is as if it had always been there: whatever was executed
there was this. Where one comes to a place that something else was at, that is a change, and it has the time at
which it was told, or seen. Code that no file backs is read now and then and when the recording is over. An ELF file
that has no name any more, and the vDSO, is read where it is mapped: so its functions have their names. What was copied
out of a file for huge pages is the file's.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from permille.controller.domain import elf_notes
from permille.controller.domain.file_stamp import stamp_of
from permille.controller.domain.generated_code import GeneratedCode
from permille.controller.domain.jit_files import is_jitdump
from permille.controller.domain.kept_files import KeptFiles
from permille.controller.domain.mapping import DELETED, USER_END, VDSO, Mapping, constant, parse_maps, parsed
from permille.controller.domain.proc_text import text_of
from permille.controller.domain.process_memory import file_without_name, own_vdso, read_memory
from permille.controller.domain.recording import ImageChange
from permille.controller.domain.remapped_text import has_its_bytes, in_files

PROC = Path("/proc")
# It is read while switch records wait.
MOST_GENERATED_BYTES = 256 << 20
# In which a file is looked for as it is mapped: of who is gone by then, a forker not far up is still there.
MOST_ROOTS = 8


class ProcessImage:
    """One process's. `now`: the TSC; `files`: those without names of all processes that are recorded together."""

    def __init__(self, pid: int, now: Callable[[], int], proc: Path = PROC, *, files: KeptFiles | None = None) -> None:
        self.pid = pid
        self._now = now
        self._proc = proc
        self._folder = proc / str(pid)
        self._parent: ProcessImage | None = None
        self._there: set[Mapping] = set()
        # Where something was at any time: programs map again and again to the same places.
        self._places: set[tuple[int, int]] = set()
        self._changes: list[ImageChange] = []
        self._seen: list[Mapping] = []
        # Of what is in memory only: the ELF file that it is, or where it was copied from; b"" of what was generated.
        self._backing: dict[Mapping, Mapping | bytes] = {}
        self._files = files or KeptFiles()
        self._generated = GeneratedCode()

    @property
    def written_over(self) -> int:
        """Pages of generated code: see `GeneratedCode`."""
        return self._generated.written_over

    def look(self) -> None:
        """Takes in what is mapped now; nothing where the process is gone."""
        try:
            told = parse_maps(text_of(self._folder / "maps"))
            now = {mapping for mapping in told if not is_jitdump(mapping.path)}
        except OSError:
            return
        if not now:
            # A process that ends has given its memory up already.
            return
        new = {self._stamped(mapping) for mapping in now - self._there}
        come = [mapping for mapping in new if not self._lost_its_file(mapping)]
        self._come((piece for mapping in come for piece in self._not_yet_there(mapping)), self._now)
        self._there = new.union(mapping for mapping in self._there if mapping in now)

    def map(self, mapping: Mapping, tsc: int) -> int:
        """It came at that time, in place of what it covers. How many changes that is: none where it was there."""
        if mapping in self._there or mapping.end > USER_END or is_jitdump(mapping.path):
            return 0
        mapping = self._stamped(mapping)
        pieces = self._not_yet_there(mapping)
        if pieces:
            self._there = {left for other in self._there for left in other.beside(mapping)} | {mapping}
        return self._come(pieces, lambda: tsc)

    def fork(self, parent: ProcessImage, tsc: int) -> int:
        """What another one has is all that it has from that time on. How many changes that is."""
        self._parent = parent
        self._there = set(parent._there)
        self._generated.inherit(parent._generated)
        return self._come(self._there, lambda: tsc)

    def roots(self) -> Iterator[int]:
        """Processes in whose root its files are: itself, then those that it was forked from, the last one first."""
        image: ProcessImage | None = self
        known: set[int] = set()
        while image is not None and image.pid not in known:
            known.add(image.pid)
            yield image.pid
            image = image._parent

    def begin(self) -> None:
        """Another program: nothing is there."""
        self._there = set()

    def read_code(self) -> None:
        """Takes in what stands now where no file backs it; nothing where the process is gone."""
        unbacked = [mapping for mapping in self._there if mapping.in_memory_only and not self._backing.get(mapping)]
        if not unbacked:
            return
        try:
            with (self._folder / "mem").open("rb", buffering=0) as memory:
                self._find_files(memory.fileno(), [mapping for mapping in unbacked if mapping not in self._backing])
                now, left = self._now(), MOST_GENERATED_BYTES
                for mapping in sorted(unbacked, key=lambda mapping: mapping.begin):
                    if not self._backing.get(mapping):
                        code = read_memory(memory.fileno(), mapping, left)
                        self._generated.take(mapping.begin, code, now)
                        left -= len(code)
        except OSError:
            return

    def changes(self) -> Iterator[ImageChange]:
        """In the order of their epochs."""
        steps = list(zip(self._changes, self._seen, strict=True))
        for tsc, begin, end in self._generated.later():
            steps.append((ImageChange(0, tsc, "code", begin, end - begin), Mapping(begin, end, 0, 0, "")))
        epoch = latest = 0
        for change, mapping in sorted(steps, key=lambda step: step[0].tsc):
            if change.tsc > latest:
                epoch, latest = epoch + 1, change.tsc
            for part in self._with_code(change, mapping):
                yield replace(part, epoch=epoch)

    def _with_code(self, change: ImageChange, mapping: Mapping) -> Iterator[ImageChange]:
        backing = self._backing.get(mapping) or (own_vdso(mapping) if mapping.path == VDSO else b"")
        if isinstance(backing, Mapping):
            yield replace(change, path=backing.path, offset=backing.offset, stamp=backing.stamp)
        elif not mapping.in_memory_only:
            yield change
        elif backing:
            build_id, _ = elf_notes.names_in(io.BytesIO(backing))
            yield replace(change, path=mapping.path.removesuffix(DELETED), build_id=build_id, code=backing)
        else:
            parts = [
                replace(change, event="code", path="", address=begin, size_bytes=len(code), offset=0, code=code)
                for begin, code in self._generated.at(mapping.begin, mapping.end, change.tsc)
            ]
            if sum(part.size_bytes for part in parts) < change.size_bytes:
                yield replace(change, path="")
            yield from parts

    def _find_files(self, memory: int, mappings: Sequence[Mapping]) -> None:
        """Which of them are files' after all."""
        if not mappings:
            return
        every = list(parsed(text_of(self._folder / "maps")))
        unchanged = constant(every)
        for mapping in mappings:
            as_files = list(in_files(mapping, (other for _, other in every)))
            if not as_files:
                parts = filter(mapping.same_file, unchanged) if mapping.of_file else ()
                code = file_without_name(self._folder, memory, parts)
                if mapping.path != VDSO:
                    code = self._files.keep(mapping.path.removesuffix(DELETED), code)
                self._backing[mapping] = code
            for as_file in as_files:
                if has_its_bytes(memory, as_file, self._folder / "root"):
                    self._backing[mapping] = self._stamped(as_file)
                    break

    def _not_yet_there(self, mapping: Mapping) -> list[Mapping]:
        """Memory for generated code grows, and its protection changes: what stands there shows when it is read."""
        pieces = [mapping]
        for other in self._there if mapping.generated else ():
            if other.generated:
                pieces = [left for piece in pieces for left in piece.beside(other)]
        return pieces

    def _stamped(self, mapping: Mapping) -> Mapping:
        """With the stamp that its file has now: what is at that path later may be another one."""
        if mapping.in_memory_only:
            return mapping
        roots = (f"{self._proc}/{pid}/root" for pid in islice(self.roots(), MOST_ROOTS))
        return replace(mapping, stamp=stamp_of(mapping.path, mapping.inode, chain(roots, ("",))))

    def _lost_its_file(self, mapping: Mapping) -> bool:
        """Whether it was there before, and its file was removed since: another one may have the name by now."""
        before = replace(mapping, path=mapping.path.removesuffix(DELETED))
        if before == mapping or before not in self._seen:
            return False
        self._seen = [mapping if seen == before else seen for seen in self._seen]
        return True

    def _come(self, mappings: Iterable[Mapping], when: Callable[[], int]) -> int:
        come = sorted(mappings, key=lambda mapping: mapping.begin)
        tsc = when() if any(self._was_taken(mapping) for mapping in come) else 0
        for mapping in come:
            self._places.add((mapping.begin, mapping.end))
            self._seen.append(mapping)
            self._changes.append(
                ImageChange(
                    epoch=0,
                    tsc=tsc,
                    event="map",
                    address=mapping.begin,
                    size_bytes=mapping.end - mapping.begin,
                    offset=mapping.offset,
                    path=mapping.path,
                    stamp=mapping.stamp,
                )
            )
        return len(come)

    def _was_taken(self, mapping: Mapping) -> bool:
        place = mapping.begin, mapping.end
        return place in self._places or any(place[0] < end and begin < place[1] for begin, end in self._places)
