"""What a session lost that no worker tells of: what was not recorded, segments that cannot be decoded, notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from permille.decoder.domain.core_segments import of_core
from permille.decoder.domain.knobs import buffer_knob
from permille.decoder.domain.manifest import Manifest, Segment
from permille.decoder.domain.part_record import LostSegment


def session_losses(
    manifest: Manifest, lost: Mapping[int, LostSegment], notes: Iterable[str], unrecorded_bytes: int
) -> Iterator[dict[str, Any]]:
    """Rows of the table `losses` without what all tables have. `lost`: segments without a decode, by index.

    `unrecorded_bytes`: recorded nowhere, of the whole session. A note is a loss of no bytes in no segment (-1).
    """
    buffers = sum(segment.buffer_bytes for segment in manifest.segments)
    recorded = sum(segment.size_bytes for segment in manifest.segments)
    # How much a full core did not record nobody counted: as much again is a guess.
    core_knob, thread_knob = (buffer_knob(buffers, recorded, missing) for missing in (recorded, unrecorded_bytes))
    for segment in manifest.segments:
        if of_core(segment):
            yield from _full_core(manifest, segment, core_knob)
        else:
            yield from _full_thread(manifest, segment, thread_knob)
        if segment.index in lost:
            yield _undecoded(manifest, segment, lost[segment.index])
    for note in notes:
        yield _loss(-1, start_ns=manifest.start_ns, end_ns=manifest.end_ns, reason=note, knob="")


def _full_core(manifest: Manifest, segment: Segment, knob: str) -> Iterator[dict[str, Any]]:
    """One buffer for all the threads of a core; one segment has its size, the first or, of an import, the last."""
    if segment.full and segment.buffer_bytes:
        yield _loss(
            segment.index,
            offset=segment.size_bytes,
            start_ns=manifest.clock.ns(segment.first_tsc) or manifest.start_ns,
            end_ns=manifest.end_ns,
            reason=f"the buffer of core {segment.core} was full: what ran afterwards was not recorded",
            knob=knob,
        )


def _full_thread(manifest: Manifest, segment: Segment, knob: str) -> Iterator[dict[str, Any]]:
    if segment.lost_bytes or segment.lost_blocks or segment.full:
        yield _loss(
            segment.index,
            offset=segment.size_bytes,
            size_bytes=segment.lost_bytes,
            start_ns=manifest.clock.ns(segment.last_tsc) or manifest.start_ns,
            end_ns=manifest.end_ns,
            reason=f"the buffer was full: {segment.lost_blocks:,} blocks were not recorded",
            knob=knob,
        )


def _undecoded(manifest: Manifest, segment: Segment, lost: LostSegment) -> dict[str, Any]:
    return _loss(
        segment.index,
        offset=segment.stream_begin,
        size_bytes=segment.size_bytes,
        start_ns=manifest.clock.ns(segment.first_tsc) or manifest.start_ns,
        end_ns=manifest.clock.ns(segment.last_tsc) or manifest.end_ns,
        reason=lost.reason,
        knob=lost.knob,
    )


def _loss(
    segment: int, *, start_ns: int, end_ns: int, reason: str, knob: str, offset: int = 0, size_bytes: int = 0
) -> dict[str, Any]:
    return {
        "segment": segment,
        "stream_offset": offset,
        "size_bytes": size_bytes,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "reason": reason,
        "address": 0,
        "knob": knob,
    }
