"""The segments of cores, as recorders make them, as segments of the threads that ran there.

A core's stream is one object. Everything behind the archive takes a segment for what one thread did: so each thread
that the switch records saw on the core gets a segment of its own, which names the same object. Which packets are whose
is found where the packets are (`permille.ptcore.divide`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from permille.decoder.domain.manifest import Manifest, Segment
from permille.decoder.domain.switch_records import IN, records

# Process and number: another process may take the number over.
Thread: TypeAlias = tuple[int, int]

# Offset in the stream, pid, tid, epoch, kernel's epoch, how often the thread had come from another core.
Turn: TypeAlias = tuple[int, int, int, int, int, int]

# The kind of a segment that comes of a core's here; no manifest has it.
_BY_SWITCHES = "core-by-switches"


@dataclass
class _Stay:
    """A thread on a core: when it was first and last seen there, whether it was still there at the end."""

    first_tsc: int
    last_tsc: int
    stays: bool


def to_divide(manifest: Manifest) -> bool:
    """Whether it has whole cores, of which nobody said yet who ran there; an import says so itself."""
    return not manifest.imported and any(segment.kind == "core" for segment in manifest.segments)


def of_core(segment: Segment) -> bool:
    """Whether its object is the stream of a core, which may hold packets of others."""
    return segment.kind in {"core", _BY_SWITCHES}


def by_core(
    streams: Iterable[tuple[Segment, ...]],
) -> tuple[list[tuple[Segment, ...]], list[tuple[Segment, ...]]]:
    """Streams of cores, and others."""
    found: tuple[list[tuple[Segment, ...]], list[tuple[Segment, ...]]] = ([], [])
    for stream in streams:
        found[0 if of_core(stream[0]) else 1].append(stream)
    return found


def by_switches(segment: Segment) -> bool:
    """Whether the switch records say which of its object's packets are whose."""
    return segment.kind == _BY_SWITCHES


def unattributed(segment: Segment) -> bool:
    """Whether no switch record says who ran on its core."""
    return by_switches(segment) and segment.tid == 0


def divided(manifest: Manifest, switches: bytes) -> Manifest:
    """The manifest with a segment for each thread of a core, numbered anew. `switches`: 24-byte records by time.

    The first segment of a core has its bytes: how many are whose is known when it is decoded.
    """
    stays = _stays(switches)
    names = {(thread.pid, thread.tid): thread.name for thread in manifest.threads}
    found: list[Segment] = []
    for segment in manifest.segments:
        parts = _threads(segment, stays.get(segment.core, {}), names) if segment.kind == "core" else [segment]
        for part in parts:
            found.append(part.model_copy(update={"index": len(found)}))
    return manifest.model_copy(update={"segments": tuple(found)})


def _threads(
    segment: Segment, stays: Mapping[Thread, _Stay], names: Mapping[tuple[int | None, int], str]
) -> list[Segment]:
    if not stays:
        unknown = {"kind": _BY_SWITCHES, "thread_name": "unknown: nothing was seen to switch"}
        return [segment.model_copy(update=unknown)]
    return [
        segment.model_copy(
            update={
                "kind": _BY_SWITCHES,
                "pid": pid,
                "tid": tid,
                # Once recorders did not tell whose thread it is.
                "thread_name": names.get((pid, tid), names.get((None, tid), "")),
                **_times(segment, stay),
            }
            | ({} if number == 0 else {"size_bytes": 0, "stored_bytes": 0, "buffer_bytes": 0})
        )
        for number, ((pid, tid), stay) in enumerate(stays.items())
    ]


def _times(segment: Segment, stay: _Stay) -> dict[str, int]:
    """A thread may have left before a snapshot begins."""
    last = segment.last_tsc if stay.stays else stay.last_tsc
    return {"first_tsc": min(max(stay.first_tsc, segment.first_tsc), last), "last_tsc": last}


def _stays(switches: bytes) -> dict[int, dict[Thread, _Stay]]:
    """By core and thread."""
    cores: dict[int, dict[Thread, _Stay]] = {}
    for tsc, core, pid, tid, operation in records(switches):
        if tid == 0:
            continue
        stay = cores.setdefault(core, {}).setdefault((pid, tid), _Stay(tsc, tsc, stays=True))
        stay.last_tsc, stay.stays = tsc, operation == IN
    return cores


def bytes_by_thread(turns: Iterable[Turn], size: int) -> dict[Thread, int]:
    """How many bytes of a stream each thread has; turns as `permille.ptcore.divide` tells them."""
    sizes: dict[Thread, int] = {}
    for (begin, pid, tid, *_), end in _with_ends(list(turns), size):
        sizes[pid, tid] = sizes.get((pid, tid), 0) + end - begin
    return sizes


def _with_ends(turns: list[Turn], size: int) -> Iterator[tuple[Turn, int]]:
    ends = [turn[0] for turn in turns[1:]] + [size]
    yield from zip(turns, ends, strict=True)
