"""How far a recording is, for whoever watches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BufferProgress:
    """One buffer: of a core, or of the thread `tid` where `core` is -1. Sizes in bytes.

    `lost_bytes`: as far as the recorder counts what it does not record; cores do not. `lost_records`: switch records
    that found no room. `stopped`: nothing is written any more although the session goes on, which a full one is too.
    """

    size_bytes: int
    buffer_bytes: int
    full: bool
    stopped: bool
    lost_bytes: int = 0
    lost_records: int = 0
    core: int = -1
    tid: int = 0


@dataclass(frozen=True)
class Progress:
    """All buffers of a session, and what remains of its period."""

    buffers: Sequence[BufferProgress]
    remaining_ms: int
