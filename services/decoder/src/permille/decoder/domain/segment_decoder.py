"""One segment from raw packets to rows on disk. Runs in a worker process and needs nothing but local files."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from permille.decoder.domain.core_timeline import CoreTimeline
from permille.decoder.domain.image_steps import ImageStep, StepKind
from permille.decoder.domain.manifest import Clock, PacketOptions, Segment
from permille.decoder.domain.ptcore_columns import arrow_batch
from permille.decoder.domain.segment_rows import call_batches, edge_batch, loss_batch
from permille.ptcore import Binary, Image, PtConfig, decode

_COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class SegmentTask:
    """Everything that a worker needs: paths are local; rows go into `out`, which exists."""

    segment: Segment
    clock: Clock
    options: PacketOptions
    raw: Path
    code: Path
    steps: tuple[ImageStep, ...]
    timeline: CoreTimeline
    out: Path


@dataclass(frozen=True)
class SegmentResult:
    """Where the rows are (Arrow IPC files, without what only the whole session knows), and ptcore's counters."""

    index: int
    functions: Path
    calls: Path
    edges: Path
    losses: Path
    call_count: int
    decode_ms: int
    stats: dict[str, int] = field(default_factory=dict)


def decode_segment(task: SegmentTask) -> SegmentResult:
    """Decodes and writes the rows. Raises what ptcore raises for a stream that it cannot decode at all."""
    begun = time.perf_counter()
    segment = task.segment
    with _mapped(task.raw) as packets, _mapped(task.code) as code:
        image = _image(task.steps, code)
        decoded = decode(packets, image, _config(task.options), list(segment.epochs))
    result = SegmentResult(
        index=segment.index,
        functions=task.out / f"functions-{segment.index}.arrow",
        calls=task.out / f"calls-{segment.index}.arrow",
        edges=task.out / f"edges-{segment.index}.arrow",
        losses=task.out / f"losses-{segment.index}.arrow",
        call_count=decoded.stats["calls"],
        decode_ms=round((time.perf_counter() - begun) * 1000),
        stats=dict(decoded.stats),
    )
    _write(result.functions, iter([arrow_batch(decoded.functions())]))
    _write(result.calls, call_batches(arrow_batch(decoded.calls()), segment, task.clock, task.timeline))
    _write(result.edges, iter([edge_batch(arrow_batch(decoded.edges()), segment)]))
    _write(result.losses, iter([loss_batch(arrow_batch(decoded.losses()), segment, task.clock)]))
    return result


def read_rows(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of one of the result's files."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as batches:
        yield from batches


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    first = next(batches)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, first.schema, options=_COMPRESSION) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _config(options: PacketOptions) -> PtConfig:
    return PtConfig(
        options.family,
        options.model,
        options.stepping,
        options.mtc_freq,
        options.tsc_ctc_ratio,
        options.nominal_ratio,
        options.return_compression,
    )


def _image(steps: tuple[ImageStep, ...], code: memoryview) -> Image:
    image = Image()
    for step in steps:
        where = (step.epoch, step.address, step.size)
        if step.kind == StepKind.UNMAP:
            image.unmap(*where)
        elif step.kind == StepKind.CODE:
            image.code(step.epoch, step.address, bytes(code[step.offset : step.offset + step.size]))
        elif step.kind == StepKind.MISSING:
            image.missing(*where, step.name, step.reason)
        else:
            _map(image, step)
    return image


def _map(image: Image, step: ImageStep) -> None:
    try:
        binary = _binary(step.path, step.debug_path)
    except (ValueError, OSError) as error:
        # Not an ELF file, or damaged: the code in it is unknown, the rest of the session is not.
        image.missing(step.epoch, step.address, step.size, step.name, f"the binary cannot be read: {error}")
        return
    image.map(step.epoch, step.address, step.size, step.offset, binary, step.name)


@lru_cache(maxsize=256)
def _binary(path: str, debug_path: str) -> Binary:
    return Binary(path, debug_path or None)


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The file's content; an empty or absent file is empty."""
    if not path.is_file() or path.stat().st_size == 0:
        yield memoryview(b"")
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping,
        memoryview(mapping) as view,
    ):
        yield view
