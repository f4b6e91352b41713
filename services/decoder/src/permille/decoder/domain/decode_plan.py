"""Which segments a worker decodes in one go: large ones alone, small ones together."""

from __future__ import annotations

from collections.abc import Iterable

from permille.decoder.domain.manifest import Segment

# A part costs some ms of its own, however small; a file of each table, however few its rows.
_LEAST_BYTES = 256 << 10
_MOST_BYTES = 4 << 20
_MOST_SEGMENTS = 512
# So many parts for each place among the workers, so that they end at about the same time.
_PARTS_A_SLOT = 4


def planned(segments: Iterable[Segment], slots: int) -> list[tuple[Segment, ...]]:
    """The largest first: the smaller ones fill the gaps at the end."""
    ordered = sorted(segments, key=lambda segment: (-segment.size_bytes, segment.index))
    total = sum(segment.size_bytes for segment in ordered)
    wanted = min(max(total // (slots * _PARTS_A_SLOT), _LEAST_BYTES), _MOST_BYTES)
    parts: list[tuple[Segment, ...]] = []
    together: list[Segment] = []
    size = 0
    for segment in ordered:
        if together and (size + segment.size_bytes > wanted or len(together) == _MOST_SEGMENTS):
            parts.append(tuple(together))
            together, size = [], 0
        together.append(segment)
        size += segment.size_bytes
    return [*parts, tuple(together)] if together else parts
