"""How often somebody may call: evenly over time, with a minute's calls at once after a quiet minute."""

from __future__ import annotations

# After a minute without a call a bucket is full.
_SWEEP_S = 60.0


class TokenBucket:
    """`per_minute` calls a minute; times are seconds of any clock that does not go back."""

    def __init__(self, per_minute: int, now_s: float) -> None:
        self._per_second = per_minute / 60
        self._most = float(per_minute)
        self._tokens = self._most
        self._filled_s = now_s

    def full(self, now_s: float) -> bool:
        """Whether it is as one that was never used."""
        return self._tokens + (now_s - self._filled_s) * self._per_second >= self._most

    def wait_s(self, now_s: float) -> float:
        """0.0 when a call may go on, which is then counted; else after how long it may."""
        self._tokens = min(self._most, self._tokens + (now_s - self._filled_s) * self._per_second)
        self._filled_s = now_s
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_second


class TokenBuckets:
    """One for each caller, as long as it differs from one that was never used."""

    def __init__(self, now_s: float) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self._swept_s = now_s

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, name: str, per_minute: int, now_s: float) -> float:
        """As `TokenBucket.wait_s`, of the caller's own."""
        if now_s - self._swept_s >= _SWEEP_S:
            self._swept_s = now_s
            self._buckets = {known: bucket for known, bucket in self._buckets.items() if not bucket.full(now_s)}
        return self._buckets.setdefault(name, TokenBucket(per_minute, now_s)).wait_s(now_s)
