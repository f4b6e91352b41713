"""Adaptive rounds over pods: one after the other, until another one is not expected to be worth its trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from permille.coverage.domain.rounds import Action, Option
from permille.coverage.service.kubernetes.operations import Operations
from permille.mesh.errors import PermilleError


@dataclass(frozen=True)
class Judgement:
    """Whether another pod has its turn, and why or why not."""

    go_on: bool
    reason: str


class PodRounds:
    """Asks coverage what the sessions so far let expect; `min_gain`: new functions that a MiB of trace must bring."""

    def __init__(self, operations: Operations, min_gain: float) -> None:
        self._operations = operations
        self._min_gain = min_gain

    async def judge(self, recordings: Sequence[str]) -> Judgement:
        """After these sessions. Raises `Unavailable` while coverage is away."""
        if len(recordings) < 2:
            return Judgement(True, "one session alone does not tell what is missing")
        try:
            seen = await self._operations.coverage(recordings)
        except PermilleError as error:
            if error.retry_after_s is not None:
                raise
            return Judgement(False, f"what has been seen cannot be told: {error.message}")
        new = sum(version.functions.next_session for version in seen.versions)
        size = sum(replica.raw_bytes for replica in seen.replicas) // max(len(seen.replicas), 1)
        option = Option(Action.REPLICA, 0, new, size, 0.0)
        told = f"another pod: {new:.1f} new functions expected, {option.per_mib:.2f} for each MiB"
        if option.per_mib < self._min_gain:
            return Judgement(False, f"{told}: {self._min_gain:g} are wanted")
        return Judgement(True, told)
