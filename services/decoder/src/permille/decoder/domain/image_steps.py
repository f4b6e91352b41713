"""The image of a process as steps that a worker can replay: which bytes were where, from which epoch on."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from permille.decoder.domain.archive import MapChange
from permille.decoder.domain.binary_repository import LocalBinary
from permille.decoder.domain.module_builds import ModuleBuilds
from permille.ptcore import Generated


class StepKind(StrEnum):
    """What a step does to the image."""

    MAP = "map"
    UNMAP = "unmap"
    CODE = "code"
    INSIDE = "inside"
    MISSING = "missing"
    LOAD = "load"


@dataclass(frozen=True)
class ImageStep:
    """One change. MAP: the file `path` (with `debug_path`) from `offset`; CODE: bytes at `offset` of the code file.

    INSIDE: from `offset` the ELF file that stands in the code file at `inside` (offset, size).
    MISSING: memory whose content is not known, for the `reason`.
    LOAD: a function that a jitdump tells, by its number there: `offset`.
    """

    kind: StepKind
    epoch: int
    address: int
    size: int
    offset: int = 0
    name: str = ""
    path: str = ""
    debug_path: str = ""
    reason: str = ""
    inside: tuple[int, int] = (0, 0)


def image_steps(
    changes: Iterable[MapChange],
    binaries: Mapping[str, LocalBinary],
    modules: ModuleBuilds,
    *,
    code_missing: str = "",
) -> list[ImageStep]:
    """The steps of one process. `binaries` by key; `code_missing`: why there is no code file, "" when there is one."""
    return [_step(change, binaries, modules, code_missing) for change in changes]


def with_loads(
    generated: Generated,
    changes: Sequence[MapChange],
    steps: Sequence[ImageStep],
    code: mmap.mmap | bytes,
    *,
    by_time: bool,
) -> tuple[list[ImageStep], list[tuple[int, int]]]:
    """The steps of one process with what its jitdump tells, and from which TSC on which epoch holds.

    `code`: the code file's. `by_time`: see `Generated.placed`.
    """
    told = [
        (change.epoch, change.tsc, change.address, change.size_bytes, _has_no_file(step))
        for change, step in zip(changes, steps, strict=True)
    ]
    stood = [
        bytes(memoryview(code)[step.offset : step.offset + step.size]) if step.kind == StepKind.CODE else None
        for step in (steps if by_time else ())
    ]
    placed, epochs = generated.placed(told, by_time, stood)
    return [_placed(steps, *place) for place in placed], epochs


def _has_no_file(step: ImageStep) -> bool:
    return step.kind == StepKind.CODE or (step.kind == StepKind.MISSING and not step.name)


def _placed(steps: Sequence[ImageStep], epoch: int, number: int, address: int, size: int) -> ImageStep:
    if number < 0:
        return ImageStep(StepKind.LOAD, epoch, 0, 0, offset=-1 - number)
    step = steps[number]
    offset = step.offset + (address - step.address if step.kind == StepKind.CODE else 0)
    return replace(step, epoch=epoch, address=address, size=size, offset=offset)


def _step(
    change: MapChange, binaries: Mapping[str, LocalBinary], modules: ModuleBuilds, code_missing: str
) -> ImageStep:
    where = (change.epoch, change.address, change.size_bytes)
    if change.event == "unmap":
        return ImageStep(StepKind.UNMAP, *where)
    if change.event == "code" or change.code_size:
        return _from_code_file(change, code_missing)
    if not change.binary:
        no_file = "no file backs it"
        unread = "the file could not be read when it was recorded" if change.path.startswith("/") else no_file
        return ImageStep(StepKind.MISSING, *where, name=change.path, reason=change.missing or unread)
    local = binaries.get(change.binary, LocalBinary(None, missing="the binary is not in the repository"))
    if local.path is None:
        return ImageStep(StepKind.MISSING, *where, name=change.path, reason=local.missing)
    return ImageStep(
        StepKind.MAP,
        *where,
        offset=change.offset,
        name=modules.module(change),
        path=str(local.path),
        debug_path=str(local.debug_path or ""),
    )


def _from_code_file(change: MapChange, code_missing: str) -> ImageStep:
    where = (change.epoch, change.address, change.size_bytes)
    if code_missing:
        return ImageStep(StepKind.MISSING, *where, name=change.path, reason=code_missing)
    if change.code_size:
        inside = (change.code_offset, change.code_size)
        return ImageStep(StepKind.INSIDE, *where, offset=change.offset, name=change.path, inside=inside)
    return ImageStep(StepKind.CODE, *where, offset=change.code_offset)
