"""The packets of a part's segments, on their way from the object store while others are decoded."""

from __future__ import annotations

import asyncio
import mmap
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from permille.decoder.domain.archive import is_lost
from permille.decoder.domain.core_segments import by_core, by_switches, unattributed
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.part_record import LostSegment
from permille.decoder.domain.session_context import SessionContext
from permille.mesh.errors import PermilleError

BACKUP_KNOB = "restore the object from a backup of the store, or record again"
# Segments of up to so many bytes are fetched together, others one by one.
_SMALL = 1 << 18
# Up to so many of a batch are kept in memory, more are put onto the disk: two batches at a time are there.
_IN_MEMORY = 32 << 20
_MOST_AT_ONCE = 32
# The segments whose packets one object holds.
Stream: TypeAlias = tuple[Segment, ...]
# Raw packets, or why there are none.
Packets: TypeAlias = mmap.mmap | bytes | LostSegment
Fetched: TypeAlias = tuple[Stream, Packets]


async def fetched_packets(
    context: SessionContext, batches: Sequence[Sequence[Stream]], folder: Path
) -> AsyncGenerator[list[Fetched]]:
    """The packets of each batch, unpacked and checked, while those of the next one are on their way.

    What is lost is told in place of packets. `folder`: for temporary files.
    Raises what the store raises when it is away.
    """

    async def fetched(batch: Sequence[Stream]) -> list[Fetched]:
        on_disk = folder if sum(map(_bytes, batch)) > _IN_MEMORY else None
        packets = await asyncio.gather(*(_packets(context, stream, on_disk) for stream in batch))
        return list(zip(batch, packets, strict=True))

    coming = asyncio.create_task(fetched(batches[0]))
    try:
        for following in [*batches[1:], None]:
            batch = await coming
            if following is not None:
                coming = asyncio.create_task(fetched(following))
            yield batch
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def fetched_together(wanted: Sequence[Stream], *, cores_together: bool = False) -> Iterator[list[Stream]]:
    """Small streams by the dozen, so that a worker waits for the store once; a large one alone."""
    cores, others = by_core(wanted) if cores_together else ([], wanted)
    if cores:
        yield cores
    batch: list[Stream] = []
    for stream in others:
        if batch and (len(batch) == _MOST_AT_ONCE or _bytes(stream) > _SMALL):
            yield batch
            batch = []
        batch.append(stream)
    if batch:
        yield batch


def _bytes(stream: Stream) -> int:
    """Packed or not, whichever is more."""
    return max(sum(segment.size_bytes for segment in stream), sum(segment.stored_bytes for segment in stream))


async def _packets(context: SessionContext, stream: Stream, folder: Path | None) -> Packets:
    segment = stream[0]
    if by_switches(segment):
        needed = []
        if unattributed(segment):
            return LostSegment(segment.index, f"no switch record says who ran on core {segment.core}", "")
        if context.missing:
            return LostSegment(segment.index, context.missing, BACKUP_KNOB)
    else:
        needed = [pid for _, pid, *_ in segment.turns] or [segment.pid]
    for pid in needed:
        if pid not in context.steps:
            reason = context.missing or f"the mappings of process {pid} are missing"
            return LostSegment(segment.index, reason, BACKUP_KNOB)
    try:
        if folder is None:
            return await context.archive.segments_bytes(stream)
        with tempfile.TemporaryFile(dir=folder) as file:
            await context.archive.fetch_segments(stream, cast(BinaryIO, file))
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
    except PermilleError as error:
        if not is_lost(error):
            raise
        return LostSegment(segment.index, error.message, BACKUP_KNOB)
