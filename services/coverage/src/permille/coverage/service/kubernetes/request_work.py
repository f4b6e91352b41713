"""One TraceRequest from its creation to its end and beyond: what it says is all that a new operator needs to go on."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog
from permille.coverage.domain.kubernetes.conditions import (
    ACCEPTED,
    COMPLETE,
    FAILED,
    from_timestamp,
    is_finished,
    is_true,
    timestamp,
    with_condition,
)
from permille.coverage.service.kubernetes.acceptance import ADMISSION_MISSING, Verdict, judge, look, status_of
from permille.coverage.service.kubernetes.cluster import REQUESTS, Cluster, Object, is_transient
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.session_work import Outcome, SessionWork
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.backoff import Backoff

_log = structlog.get_logger(__name__)
# How often at most it is looked whether a request that has to wait may go on, and when the server is asked in any case.
_LOOK_S = 1.0
_AGAIN_S = 60.0
Tell = Callable[[str, str, str], None]


def _now() -> datetime:
    return datetime.now(UTC)


class RequestWork:
    """Follows TraceRequests, each in one task at a time."""

    def __init__(
        self, cluster: Cluster, watched: Watched, operations: Operations, *, now: Callable[[], datetime] = _now
    ) -> None:
        self._cluster = cluster
        self._watched = watched
        self._operations = operations
        self._sessions = SessionWork(cluster, operations, now)
        self._now = now
        self._accepting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._following: dict[str, asyncio.Task[None]] = {}

    async def follow(self, namespace: str, name: str, uid: str, tell: Tell) -> None:
        """Returns when the object is gone, is being deleted, or `stop` was called.

        `tell` gets what happens as type, reason and message of an event.
        """
        task = asyncio.create_task(self._follow(namespace, name, uid, tell))
        self._following[uid] = task
        try:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        finally:
            task.cancel()
            if self._following.get(uid) is task:
                del self._following[uid]

    async def stop(self, uid: str, created: str) -> None:
        """Ends everything that was begun for this request; what was recorded until now is stored."""
        task = self._following.get(uid)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        await self._operations.stop(f"{uid}.", from_timestamp(created))

    async def _follow(self, namespace: str, name: str, uid: str, tell: Tell) -> None:
        pauses = Backoff(0.2, 5.0)
        while True:
            try:
                request = await self._cluster.get(REQUESTS, namespace, name)
                if request is None or request["metadata"]["uid"] != uid or "deletionTimestamp" in request["metadata"]:
                    return
                await self._step(request, tell)
                pauses.reset()
            except Exception as error:
                if not is_transient(error):
                    raise
                _log.warning("cannot go on now; trying again", request=f"{namespace}/{name}", error=str(error))
                await pauses.pause()

    async def _step(self, request: Object, tell: Tell) -> None:
        status = request.get("status")
        if is_finished(status):
            await self._expire(request)
        elif is_true(status, ACCEPTED):
            await self._record(request, tell)
        else:
            await self._accept(request, tell)

    async def _accept(self, request: Object, tell: Tell) -> None:
        metadata = request["metadata"]
        # One after the other in a namespace: each counts those that were accepted before.
        async with self._accepting[metadata["namespace"]]:
            verdict = await judge(self._cluster, self._watched, request)
            before = [one for one in (request.get("status") or {}).get("conditions") or [] if one["type"] == ACCEPTED]
            news = [(one["reason"], one["message"]) for one in before] != [(verdict.reason, verdict.message)]
            if news:
                status = status_of(verdict, request, self._now())
                version = metadata["resourceVersion"]
                await self._cluster.patch_status(
                    REQUESTS, metadata["namespace"], metadata["name"], status, version=version
                )
        if news:
            tell("Normal" if verdict.kind == ACCEPTED else "Warning", verdict.reason, verdict.message)
        if not verdict.kind:
            await self._wait(request, verdict)

    async def _wait(self, request: Object, verdict: Verdict) -> None:
        """Returns when the verdict may be another one by now."""
        end = asyncio.get_running_loop().time() + _AGAIN_S
        while (left := end - asyncio.get_running_loop().time()) > 0:
            # However much changes in the cluster, nobody looks more often.
            await asyncio.sleep(_LOOK_S)
            news = self._watched.news
            if verdict.reason == ADMISSION_MISSING or await look(self._watched, request) != verdict:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), left)

    async def _record(self, request: Object, tell: Tell) -> None:
        outcomes: list[Outcome] = []
        places = request["status"]["sessions"]
        if not is_true(request["status"], COMPLETE):
            waits = (COMPLETE, False, "Recording", f"0 of {len(places)} pods done")
            await self._write(request, outcomes, waits)

        async def one(place: dict[str, Any]) -> None:
            outcome = await self._sessions.run(request, place)
            outcomes.append(outcome)
            if len(outcomes) < len(places):
                told = f"{len(outcomes)} of {len(places)} pods done"
                await self._write(request, outcomes, (COMPLETE, False, "Recording", told))

        try:
            async with asyncio.TaskGroup() as group:
                for place in places:
                    group.create_task(one(place))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        failed = [outcome for outcome in outcomes if not outcome.ok]
        if len(failed) == len(outcomes):
            told = "; ".join(sorted({outcome.message for outcome in failed}))
            end = (FAILED, True, failed[0].reason, told)
        elif failed:
            told = f"{len(failed)} of {len(outcomes)} pods failed: {failed[0].message}"
            end = (COMPLETE, True, "PartlyDecoded", told)
        else:
            told = f"{len(outcomes)} of {len(outcomes)} pods recorded and decoded"
            end = (COMPLETE, True, "Decoded", told)
        await self._write(request, outcomes, end, completionTime=timestamp(self._now()))
        tell("Warning" if failed else "Normal", end[2], end[3])

    async def _write(
        self, request: Object, outcomes: list[Outcome], condition: tuple[str, bool, str, str], **more: Any
    ) -> None:
        metadata, status = request["metadata"], request["status"]
        status["conditions"] = with_condition(
            status["conditions"], *condition, now=self._now(), generation=metadata["generation"]
        )
        written = {
            "finishedReplicas": len(outcomes),
            "failedReplicas": sum(not outcome.ok for outcome in outcomes),
            "conditions": status["conditions"],
            **more,
        }
        await self._cluster.patch_status(REQUESTS, metadata["namespace"], metadata["name"], written)

    async def _expire(self, request: Object) -> None:
        metadata, status = request["metadata"], request["status"]
        # A request that was refused has no plan; what it wished for counts.
        asked = (status.get("plan") or request["spec"]).get("ttlSecondsAfterFinished", 86_400)
        age = (self._now() - from_timestamp(status["completionTime"])).total_seconds()
        if age < asked:
            await asyncio.sleep(min(asked - age, 3600.0))
            return
        await self._cluster.delete(REQUESTS, metadata["namespace"], metadata["name"], metadata["uid"])
