"""The memory for trace buffers of a session for which nobody says how much."""

from __future__ import annotations

from dataclasses import dataclass

from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.recording import Backend


@dataclass(frozen=True)
class SessionBudget:
    """`setting`: of the node, in bytes."""

    setting: int

    def of(self, backend: Backend) -> int:
        """The setting, and never more than half of what the back end's buffers can still have."""
        try:
            return min(self.setting, backend.free_bytes() // 2)
        except NotOnThisMachine:
            return self.setting
