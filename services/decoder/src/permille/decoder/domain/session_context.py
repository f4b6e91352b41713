"""What decoding any segment of a session needs, read from its archive: images, code, switch records, binaries."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import RLock

from permille.decoder.domain.archive import SessionArchive, is_lost
from permille.decoder.domain.binary_repository import BinaryRepository, LocalBinary
from permille.decoder.domain.core_segments import by_switches
from permille.decoder.domain.core_timeline import CoreTimeline, core_timelines
from permille.decoder.domain.generated_code import read_generated
from permille.decoder.domain.image_steps import ImageStep, StepKind, image_steps, with_loads
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.module_builds import ModuleBuilds
from permille.mesh.errors import PermilleError
from permille.ptcore import Binary, Decoder, Generated, Image, PtConfig, switch_warnings

# The half of the address space that all processes share, as perf writes its pid: -1.
KERNEL = 2**32 - 1
_USER_END = 1 << 47


@dataclass
class SessionContext:
    """`missing`: why no image is known at all; `notes`: what is lost for the session as a whole."""

    archive: SessionArchive
    config: PtConfig
    steps: dict[int, tuple[ImageStep, ...]] = field(default_factory=dict)
    build_ids: Mapping[str, str] = field(default_factory=dict)
    # By pid and tid.
    timelines: dict[tuple[int, int], CoreTimeline] = field(default_factory=dict)
    # The switch records, and from which TSC on which epoch of a process's image holds: for the streams of cores.
    switches: bytes = b""
    epochs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    code: mmap.mmap | bytes = b""
    missing: str = ""
    # What processes told of the code that they wrote.
    generated: dict[int, Generated] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    # For temporary files.
    folder: Path = field(default_factory=Path)
    # Laid out like /usr/lib/debug, on this machine.
    debug_folder: str = ""
    # By key the binaries as they were found, and the paths that they were mapped from.
    found: dict[str, LocalBinary] = field(default_factory=dict)
    mapped_as: dict[str, str] = field(default_factory=dict)
    _images: dict[int, Image] = field(default_factory=dict)
    _decoders: dict[int, Decoder] = field(default_factory=dict)
    _inside: dict[tuple[int, int], Binary] = field(default_factory=dict)
    # A worker of Dask may have several threads, with a part of the session each.
    _making: RLock = field(default_factory=RLock)

    def decoder(self, pid: int) -> Decoder:
        """The decoder of a process in `steps`, made once: what it learns of the code serves all its segments."""
        with self._making:
            if pid not in self._decoders:
                self._decoders[pid] = Decoder(self.image(pid), self.config)
            return self._decoders[pid]

    def image(self, pid: int) -> Image:
        """The image of a process in `steps`, made once."""
        with self._making:
            if pid not in self._images:
                self._images[pid] = self._image(pid, self.steps[pid])
            return self._images[pid]

    def images(self, pids: Iterable[int]) -> dict[int, Image]:
        """Those of some processes, and of what all share: the half of the kernel, where it is known."""
        return {pid: self.image(pid) for pid in {*pids, KERNEL} if pid in self.steps}

    def images_or_none(self, pids: Iterable[int]) -> dict[int, Image]:
        """Those of some processes; of one whose mappings are not known, an image that says so."""
        wanted = set(pids)
        return self.images(wanted) | {pid: _unknown(pid) for pid in wanted if pid not in self.steps}

    async def is_current(self, binaries: BinaryRepository) -> bool:
        """Whether it would be the same if it were opened now: binaries come later, and what is damaged is restored."""
        if self.missing or self.notes or self.absent():
            return False
        return await _fetched(binaries, self.mapped_as) == self.found

    def absent(self) -> list[str]:
        """A line for each file that debug information refers to and that was wanted and not found."""
        with self._making:
            images = list(self._images.values())
        lines = sorted({line for image in images for line in image.absent()})
        if lines:
            # Files that come later are looked for again.
            _binary.cache_clear()
        return [f"{line}; lay the file into {self.debug_folder} of the decoder's machine" for line in lines]

    def timeline(self, segment: Segment, *, all_cores: bool = False) -> CoreTimeline:
        """On which cores the segment's thread was; `all_cores`: not on the segment's own alone."""
        thread = (segment.pid, segment.tid)
        if all_cores and thread in self.timelines:
            return self.timelines[thread].stays
        if segment.core >= 0:
            return CoreTimeline((), (segment.core,))
        return self.timelines.get(thread, CoreTimeline())

    @property
    def by_time(self) -> bool:
        """Whether times tell which changes of an image hold from where on, not the segments."""
        return any(by_switches(segment) for segment in self.archive.manifest.segments)

    def _image(self, pid: int, steps: tuple[ImageStep, ...]) -> Image:
        image, generated = Image(), self.generated.get(pid)
        if generated is not None:
            image.name_generated(generated)
        for step in steps:
            where = (step.epoch, step.address, step.size)
            if step.kind == StepKind.UNMAP:
                image.unmap(*where)
            elif step.kind == StepKind.CODE:
                code = bytes(self.code[step.offset : step.offset + step.size])
                if len(code) < step.size:
                    image.missing(*where, step.name, "the session's file of code ends in front of it")
                if code:
                    image.code(step.epoch, step.address, code)
            elif step.kind == StepKind.MISSING:
                image.missing(*where, step.name, step.reason)
            elif step.kind == StepKind.LOAD and generated is not None:
                image.load(step.epoch, generated, step.offset, not self.by_time)
            else:
                self._map(image, step)
        return image

    def _map(self, image: Image, step: ImageStep) -> None:
        try:
            inside = step.kind == StepKind.INSIDE
            binary = self._binary_inside(step.inside) if inside else self._binary(step)
        except ValueError as error:
            # Not an ELF file, or damaged: the code in it is unknown, the rest of the session is not. What finds no
            # room on this machine now is not lost.
            image.missing(step.epoch, step.address, step.size, step.name, f"the binary cannot be read: {error}")
            return
        image.map(step.epoch, step.address, step.size, step.offset, binary, step.name)

    def _binary(self, step: ImageStep) -> Binary:
        return _binary(step.path, step.debug_path, step.name, self.debug_folder)

    def _binary_inside(self, inside: tuple[int, int]) -> Binary:
        if inside not in self._inside:
            begin, size = inside
            with tempfile.NamedTemporaryFile(prefix="inside-", dir=self.folder) as file:
                file.write(memoryview(self.code)[begin : begin + size])
                file.flush()
                self._inside[inside] = Binary(file.name)
        return self._inside[inside]


def _unknown(pid: int) -> Image:
    image = Image()
    reason = f"the mappings of process {pid} are missing: it had ended before they were read"
    image.missing(0, 0, _USER_END, "", reason)
    return image


async def open_context(archive: SessionArchive, binaries: BinaryRepository, folder: Path) -> SessionContext:
    """`folder`: for temporary files. What is damaged or gone is told in the context; raises when the store is away."""
    context = SessionContext(archive, _config(archive), folder=folder, debug_folder=str(binaries.debug_folder))
    try:
        processes = await archive.maps()
    except PermilleError as error:
        if not is_lost(error):
            raise
        context.missing = error.message
        processes = {}
    await _read_timelines(context)
    changes = [change for listed in processes.values() for change in listed]
    code_missing = ""
    if any(change.event == "code" or change.code_size for change in changes):
        code_missing = await _read_code(context, folder)
    context.mapped_as = {change.binary: change.path for change in changes if change.binary}
    context.found = await _fetched(binaries, context.mapped_as)
    modules = ModuleBuilds(changes)
    context.build_ids = modules.build_ids
    context.generated, notes = await read_generated(archive, folder)
    context.notes += notes
    for pid, listed in processes.items():
        steps = image_steps(listed, context.found, modules, code_missing=code_missing)
        epochs = sorted({(change.tsc, change.epoch) for change in listed if change.tsc})
        if pid in context.generated:
            steps, epochs = with_loads(context.generated[pid], listed, steps, context.code, by_time=context.by_time)
        context.steps[pid], context.epochs[pid] = tuple(steps), epochs
    return context


async def _read_timelines(context: SessionContext) -> None:
    try:
        context.switches = await context.archive.switches()
        context.timelines = core_timelines(context.switches)
        if context.by_time and not context.archive.manifest.imported:
            # Packets of a thread are its own whatever the records say, and the manifest of an import says it.
            context.notes += switch_warnings(context.switches)
    except PermilleError as error:
        if not is_lost(error):
            raise
        context.notes.append(f"the cores of the calls are unknown: {error.message}")


async def _read_code(context: SessionContext, folder: Path) -> str:
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            await context.archive.fetch_code(file)
        except PermilleError as error:
            if not is_lost(error):
                raise
            context.notes.append(f"code that no file backs is unknown: {error.message}")
            return error.message
        if file.tell():
            context.code = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return ""


async def _fetched(binaries: BinaryRepository, mapped_as: Mapping[str, str]) -> dict[str, LocalBinary]:
    found = await asyncio.gather(*(_fetch(binaries, key, path) for key, path in mapped_as.items()))
    return dict(zip(mapped_as, found, strict=True))


async def _fetch(binaries: BinaryRepository, key: str, path: str) -> LocalBinary:
    try:
        return await binaries.fetch(key, path)
    except PermilleError as error:
        if not is_lost(error):
            raise
        return LocalBinary(None, missing=error.message)


def _config(archive: SessionArchive) -> PtConfig:
    options = archive.manifest.pt
    return PtConfig(
        options.family,
        options.model,
        options.stepping,
        options.mtc_freq,
        options.tsc_ctc_ratio,
        options.nominal_ratio,
        archive.manifest.clock.tsc0,
        options.without_tnt,
        options.filter,
    )


@lru_cache(maxsize=256)
def _binary(path: str, debug_path: str, mapped_as: str, debug_folder: str) -> Binary:
    return Binary(path, debug_path or None, mapped_as=mapped_as, folders=[debug_folder])
