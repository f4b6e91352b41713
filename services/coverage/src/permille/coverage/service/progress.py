"""How far a whole coverage operation is, from what its sessions and decodes say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from permille.api.controller.v1 import controller_pb2
from permille.api.operation.v1 import operation_pb2

Session = controller_pb2.Session
# How often progress is looked at and written while it moves, and what each part of the work adds to that.
_PAUSE_S = 0.25
_PART_S = 0.001
_BEFORE_STORING = (Session.STATE_UNSPECIFIED, Session.STATE_PREPARING, Session.STATE_RECORDING)


@dataclass(frozen=True)
class Stage:
    """One line of progress."""

    word: str
    completed: int = 0
    total: int = 0
    unit: str = ""
    waiting: str = ""


def pause_s(parts: int) -> float:
    """Between two looks at the progress of so many sessions.

    A look costs as much as there are parts, and more parts take longer: at fixed intervals they cost their square.
    """
    return max(_PAUSE_S, parts * _PART_S)


def recording_stage(sessions: Iterable[Session], period_ms: int, clock_ns: Callable[[], int] = time.time_ns) -> Stage:
    """RECORDING in ms of the period while a session records, then STORING in bytes written to the store."""
    known = list(sessions)
    if any(session.state in _BEFORE_STORING for session in known) or not known:
        begun = [s.start_time.ToNanoseconds() for s in known if s.HasField("start_time")]
        elapsed_ms = (clock_ns() - min(begun)) // 1_000_000 if begun else 0
        # The node's clock is not this one.
        return Stage("RECORDING", max(0, min(elapsed_ms, period_ms)), period_ms, "ms")
    return Stage("STORING", sum(session.stored_bytes for session in known), 0, "bytes")


def decoding_stage(parts: Iterable[operation_pb2.Progress]) -> Stage:
    """DECODING, summed over the sessions where they count the same thing."""
    told = list(parts)
    waiting = next((part.waiting for part in told if part.waiting), "")
    known = [part for part in told if part.unit]
    units = {part.unit for part in known}
    if len(units) != 1:
        return Stage("DECODING", waiting=waiting)
    completed, total = sum(part.completed for part in known), sum(part.total for part in known)
    return Stage("DECODING", completed, total if all(part.total for part in known) else 0, units.pop(), waiting)
