"""The memory for trace buffers of a session for which nobody says how much."""

from __future__ import annotations

from dataclasses import dataclass

from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.recording import Backend

# A plan by cores has buffers of 4 to 128 MiB wherever the target may come to; the allocator takes as much by itself.
CORES_BYTES = 500 << 20
# Buffers of threads are in shared memory, which a container may have little of.
THREADS_BYTES = 256 << 20


@dataclass(frozen=True)
class SessionBudget:
    """`setting`: of the node, in bytes; None: as the back end's buffers are attached."""

    setting: int | None = None

    def of(self, backend: Backend) -> int:
        """Never more than half of what the back end's buffers can still have."""
        wanted = self.setting or (CORES_BYTES if backend.by_core else THREADS_BYTES)
        try:
            return min(wanted, backend.free_bytes() // 2)
        except NotOnThisMachine:
            return wanted
