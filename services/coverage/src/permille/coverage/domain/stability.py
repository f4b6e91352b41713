"""How troubled a target has been lately: each trouble counts one and fades."""

from __future__ import annotations

import math
from dataclasses import dataclass

# After so long a trouble counts half.
HALF_LIFE_S = 7 * 24 * 3600.0
# So many are told apart; who repeats a request does so soon.
MOST_CAUSES = 64


@dataclass(frozen=True)
class Stability:
    """`issues` as of `at_s` (unix seconds); `causes`: the newest of them."""

    issues: float = 0.0
    at_s: float = 0.0
    causes: tuple[str, ...] = ()

    def now(self, at_s: float) -> float:
        """What is left of the troubles; a clock that went back fades nothing."""
        return self.issues * math.exp2(-max(0.0, at_s - self.at_s) / HALF_LIFE_S)

    def after_trouble(self, at_s: float, cause: str) -> Stability:
        """One more, unless its cause has been counted."""
        if cause in self.causes:
            return self
        return Stability(self.now(at_s) + 1.0, max(at_s, self.at_s), (*self.causes, cause)[-MOST_CAUSES:])
