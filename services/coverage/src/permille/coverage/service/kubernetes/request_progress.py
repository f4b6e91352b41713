"""How far a TraceRequest is: what its pods' ends bring is written together, about once a second; rounds at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import structlog
from permille.coverage.domain.kubernetes.conditions import COMPLETE, FAILED, is_finished, timestamp, with_conditions
from permille.coverage.domain.kubernetes.turns import Place, Round
from permille.coverage.service.kubernetes.cluster import REQUESTS, Cluster, Object, may_pass
from permille.coverage.service.kubernetes.session_work import Outcome
from permille.mesh.errors import Aborted

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
        self.rounds: Sequence[Round] = request["status"].get("rounds") or []
        # Whether something was recorded of each pod.
        self._recorded: dict[str, bool] = {}
        self._waiting: dict[str, str] = {}
        # A write that is under way must not arrive after the last one.
        self._writing = asyncio.Lock()
        self._over = False

    def ended(self, place: Place, outcome: Outcome) -> None:
        """One pod, or one round, more."""
        self.outcomes.append(outcome)
        pod = place["podUID"]
        self._recorded[pod] = self._recorded.get(pod, False) or outcome.ok
        self._news.set()

    def waits(self, session: str, why: str) -> None:
        """A pod that cannot begin, and why; "" when it can."""
        if self._waiting.get(session, "") != why:
            self._waiting[session] = why
            self._news.set()

    async def decide(self, rounds: Sequence[Round]) -> None:
        """Writes the rounds, so that the last of them may begin.

        Raises `Aborted` when others are written than those that are known here: somebody else leads.
        """
        metadata = self._request["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        async with self._writing:
            found = await self._found()
            if found is None or not self._known(found):
                raise _changed(name)
            version = found["metadata"]["resourceVersion"]
            written = {"rounds": list(rounds)}
            if await self._cluster.patch_status(REQUESTS, namespace, name, written, version=version) is None:
                raise _changed(name)
            self.rounds = rounds

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
                if not may_pass(error):
                    raise
                self._news.set()
                _log.warning(
                    "cannot tell how far a request is", request=self._request["metadata"]["name"], error=str(error)
                )

    async def end(self) -> Ended:
        """Writes how it ended, and returns that as a condition."""
        failed = [outcome for outcome in self.outcomes if not outcome.ok]
        number, pods, what = len(self.outcomes), len(self._recorded), "rounds" if self.rounds else "pods"
        if len(failed) == number:
            told = "; ".join(sorted({outcome.message for outcome in failed}))
            ended = (FAILED, True, failed[0].reason, told)
        elif failed:
            ended = (COMPLETE, True, "PartlyDecoded", f"{len(failed)} of {number} {what} failed: {failed[0].message}")
        else:
            told = f" in {number} rounds; {self.rounds[-1]['reason']}" if self.rounds else ""
            ended = (COMPLETE, True, "Decoded", f"{pods} of {pods} pods recorded and decoded{told}")
        self._over = True
        async with self._writing:
            # Of rounds some pods may have had no turn.
            await self._write(ended, completionTime=timestamp(self._now()), replicas=pods)
        return ended

    def _told(self) -> str:
        waiting = [why for why in self._waiting.values() if why]
        told = f"; {len(waiting)} wait: {waiting[0]}" if waiting else ""
        if self.rounds:
            return f"{len(self.outcomes)} of at most {self._request['spec']['rounds']} rounds done{told}"
        return f"{len(self.outcomes)} of {len(self._request['status']['sessions'])} pods done{told}"

    def _known(self, found: Object) -> bool:
        return list(found["status"].get("rounds") or []) == list(self.rounds)

    async def _found(self) -> Object | None:
        """The request as it is now; None when it is gone, and when another one has its name."""
        metadata = self._request["metadata"]
        found = await self._cluster.get(REQUESTS, metadata["namespace"], metadata["name"])
        return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None

    async def _write(self, condition: Ended, **more: Any) -> None:
        """Raises `Aborted` when it is finished: this process stood still, and somebody else leads."""
        metadata, status = self._request["metadata"], self._request["status"]
        status["conditions"] = with_conditions(
            status["conditions"], condition, now=self._now(), generation=metadata["generation"]
        )
        written = {
            "finishedReplicas": len(self._recorded),
            "failedReplicas": sum(not recorded for recorded in self._recorded.values()),
            "conditions": status["conditions"],
            **more,
        }
        found = await self._found()
        if found is None:
            return
        if is_finished(found.get("status")):
            raise _over(metadata["name"])
        version = found["metadata"]["resourceVersion"]
        await self._cluster.patch_status(REQUESTS, metadata["namespace"], metadata["name"], written, version=version)


def _over(name: str) -> Aborted:
    return Aborted(
        f"TraceRequest {name} is finished",
        reason="REQUEST_FINISHED",
        help="nothing to do: another operator went on with it",
    )


def _changed(name: str) -> Aborted:
    return Aborted(
        f"the rounds of TraceRequest {name} were changed meanwhile",
        reason="ROUNDS_CHANGED",
        help="they are read again by themselves",
    )
