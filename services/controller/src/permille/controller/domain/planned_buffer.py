"""What a plan says of one core or thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedBuffer:
    """`unit`: number of a core, or id of a thread; `size_bytes`: 0 where nothing is recorded; `reason`: why so much."""

    unit: int
    size_bytes: int
    reason: str
