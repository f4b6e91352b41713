"""How far a TraceRequest is: what its pods' ends bring is written together, about once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog
from permille.coverage.domain.kubernetes.conditions import COMPLETE, FAILED, timestamp, with_condition
from permille.coverage.service.kubernetes.cluster import REQUESTS, Cluster, Object, is_transient
from permille.coverage.service.kubernetes.session_work import Outcome

_log = structlog.get_logger(__name__)
_AGAIN_S = 1.0
Ended = tuple[str, bool, str, str]


class RequestProgress:
    """The outcomes of one request, and the rounds that led to them."""

    def __init__(self, cluster: Cluster, request: Object, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._request = request
        self._now = now
        self._news = asyncio.Event()
        self.outcomes: list[Outcome] = []
        self.rounds: list[dict[str, str]] = []
        self._waiting: dict[str, str] = {}
        # A write that is under way must not arrive after the last one.
        self._writing = asyncio.Lock()
        self._over = False

    def ended(self, outcome: Outcome) -> None:
        """One pod more."""
        self.outcomes.append(outcome)
        self._news.set()

    def waits(self, session: str, why: str) -> None:
        """A pod that cannot begin, and why; "" when it can."""
        if self._waiting.get(session, "") != why:
            self._waiting[session] = why
            self._news.set()

    def judged(self, session: str, reason: str) -> None:
        """A round, and why another one follows or not."""
        self.rounds.append({"session": session, "reason": reason})
        self._news.set()

    async def begin(self) -> None:
        """Says that it has begun."""
        await self._write((COMPLETE, False, "Recording", self._told()))

    async def follow(self) -> None:
        """Writes what comes, until cancelled. What cannot be written now comes with the next."""
        while True:
            await asyncio.sleep(_AGAIN_S)
            await self._news.wait()
            self._news.clear()
            try:
                async with self._writing:
                    if self._over:
                        return
                    await self._write((COMPLETE, False, "Recording", self._told()))
            except Exception as error:
                if not is_transient(error):
                    raise
                self._news.set()
                _log.warning(
                    "cannot tell how far a request is", request=self._request["metadata"]["name"], error=str(error)
                )

    async def end(self) -> Ended:
        """Writes how it ended, and returns that as a condition."""
        failed = [outcome for outcome in self.outcomes if not outcome.ok]
        number = len(self.outcomes)
        if len(failed) == number:
            told = "; ".join(sorted({outcome.message for outcome in failed}))
            ended = (FAILED, True, failed[0].reason, told)
        elif failed:
            ended = (COMPLETE, True, "PartlyDecoded", f"{len(failed)} of {number} pods failed: {failed[0].message}")
        else:
            told = f"; {self.rounds[-1]['reason']}" if self.rounds else ""
            ended = (COMPLETE, True, "Decoded", f"{number} of {number} pods recorded and decoded{told}")
        self._over = True
        async with self._writing:
            # Of rounds some pods may have had no turn.
            await self._write(ended, completionTime=timestamp(self._now()), replicas=number)
        return ended

    def _told(self) -> str:
        waiting = [why for why in self._waiting.values() if why]
        told = f"; {len(waiting)} wait: {waiting[0]}" if waiting else ""
        return f"{len(self.outcomes)} of {len(self._request['status']['sessions'])} pods done{told}"

    async def _write(self, condition: Ended, **more: Any) -> None:
        metadata, status = self._request["metadata"], self._request["status"]
        status["conditions"] = with_condition(
            status["conditions"], *condition, now=self._now(), generation=metadata["generation"]
        )
        written = {
            "finishedReplicas": len(self.outcomes),
            "failedReplicas": sum(not outcome.ok for outcome in self.outcomes),
            "conditions": status["conditions"],
            **({"rounds": self.rounds} if self.rounds else {}),
            **more,
        }
        await self._cluster.patch_status(REQUESTS, metadata["namespace"], metadata["name"], written)
