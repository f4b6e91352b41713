"""Which segments a worker decodes in one go: large ones alone, small ones together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from permille.decoder.domain.core_segments import by_core
from permille.decoder.domain.manifest import Segment

# A part costs some ms of its own, however small; a file of each table, however few its rows.
_LEAST_BYTES = 256 << 10
_MOST_BYTES = 4 << 20
_MOST_SEGMENTS = 512
# So many parts for each place among the workers, so that they end at about the same time.
_PARTS_A_SLOT = 4


def planned(segments: Iterable[Segment], slots: int, *, cores_together: bool = False) -> list[tuple[Segment, ...]]:
    """The largest first: the smaller ones fill the gaps at the end. Segments of one stream stay together."""
    found = streams(segments)
    if cores_together:
        cores, found = by_core(found)
        found += [tuple(chain.from_iterable(cores))] if cores else []
    ordered = sorted(found, key=lambda stream: (-_size(stream), stream[0].index))
    total = sum(map(_size, ordered))
    wanted = min(max(total // (slots * _PARTS_A_SLOT), _LEAST_BYTES), _MOST_BYTES)
    parts: list[tuple[Segment, ...]] = []
    together: list[Segment] = []
    size = 0
    for stream in ordered:
        if together and (size + _size(stream) > wanted or len(together) + len(stream) > _MOST_SEGMENTS):
            parts.append(tuple(together))
            together, size = [], 0
        together += stream
        size += _size(stream)
    return [*parts, tuple(together)] if together else parts


def streams(segments: Iterable[Segment]) -> list[tuple[Segment, ...]]:
    """The segments by the object that holds their packets: of a core's, those of all its threads."""
    found: dict[str, list[Segment]] = {}
    for segment in segments:
        found.setdefault(segment.key, []).append(segment)
    return [tuple(stream) for stream in found.values()]


def _size(stream: tuple[Segment, ...]) -> int:
    return sum(segment.size_bytes for segment in stream)
