"""How long to look, by what for."""

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


# An anomaly has been seen already and may be over soon: look at once and for long enough to hold some of it. A profile
# wants many requests of the ordinary kind. On demand is a person's question: half a second, enough for hundreds of
# requests of a busy service at a size that decodes within seconds.
DEFAULT_MS = {Purpose.ANOMALY: 1000, Purpose.PROFILING: 2000, Purpose.ON_DEMAND: 500}


def period_for(purpose: Purpose, asked_ms: int, *, longest_ms: int = LONGEST_MS) -> int:
    """The period in ms: the one asked for, or the purpose's own for 0.

    Raises `InvalidArgument` outside 1 ms to `longest_ms`.
    """
    if asked_ms == 0:
        return min(DEFAULT_MS[purpose], longest_ms)
    if not SHORTEST_MS <= asked_ms <= longest_ms:
        raise InvalidArgument(
            f"a recording of {asked_ms} ms is outside {SHORTEST_MS} ms to {longest_ms} ms",
            reason="PERIOD_OUT_OF_RANGE",
            help=f"choose {SHORTEST_MS} to {longest_ms} ms, or 0 for the purpose's own ({DEFAULT_MS[purpose]} ms)",
            metadata={"period_ms": str(asked_ms), "longest_ms": str(longest_ms)},
        )
    return asked_ms
