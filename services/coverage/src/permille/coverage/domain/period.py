"""What a recording is for, and how long one may be asked for."""

from __future__ import annotations

from enum import StrEnum

from permille.mesh.errors import InvalidArgument

SHORTEST_MS = 1
LONGEST_MS = 60_000


class Purpose(StrEnum):
    """Why somebody wants to look."""

    ANOMALY = "ANOMALY"
    PROFILING = "PROFILING"
    ON_DEMAND = "ON_DEMAND"


def require_period(asked_ms: int, *, longest_ms: int = LONGEST_MS) -> int:
    """The period in ms, as asked for. Raises `InvalidArgument` outside 1 ms to `longest_ms`."""
    if not SHORTEST_MS <= asked_ms <= longest_ms:
        raise InvalidArgument(
            f"a recording of {asked_ms} ms is outside {SHORTEST_MS} ms to {longest_ms} ms",
            reason="PERIOD_OUT_OF_RANGE",
            help=f"choose {SHORTEST_MS} to {longest_ms} ms, or 0 to have it decided",
            metadata={"period_ms": str(asked_ms), "longest_ms": str(longest_ms)},
        )
    return asked_ms
