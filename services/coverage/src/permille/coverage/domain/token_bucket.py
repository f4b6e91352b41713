"""How often somebody may call: evenly over time, with a minute's calls at once after a quiet minute."""

from __future__ import annotations


class TokenBucket:
    """`per_minute` calls a minute; times are seconds of any clock that does not go back."""

    def __init__(self, per_minute: int, now_s: float) -> None:
        self._per_second = per_minute / 60
        self._most = float(per_minute)
        self._tokens = self._most
        self._filled_s = now_s

    def wait_s(self, now_s: float) -> float:
        """0.0 when a call may go on, which is then counted; else after how long it may."""
        self._tokens = min(self._most, self._tokens + (now_s - self._filled_s) * self._per_second)
        self._filled_s = now_s
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_second
