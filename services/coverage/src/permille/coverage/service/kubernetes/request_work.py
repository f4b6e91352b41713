"""One TraceRequest from its creation to its end and beyond: what it says is all that a new operator needs to go on."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import structlog
from permille.coverage.domain.kubernetes.conditions import (
    ACCEPTED,
    COMPLETE,
    from_timestamp,
    is_finished,
    is_true,
)
from permille.coverage.domain.kubernetes.turns import Place
from permille.coverage.domain.spatial_sampler import Sampling
from permille.coverage.service.kubernetes.acceptance import ADMISSION_MISSING, Acceptance
from permille.coverage.service.kubernetes.cluster import (
    REFUSED,
    REQUESTS,
    Cluster,
    Object,
    Refusals,
    may_pass,
)
from permille.coverage.service.kubernetes.expected_rates import ExpectedRates
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.pod_rounds import PodRounds
from permille.coverage.service.kubernetes.request_progress import RequestProgress
from permille.coverage.service.kubernetes.request_status import Verdict, status_of
from permille.coverage.service.kubernetes.session_work import SessionWork, Tell
from permille.coverage.service.kubernetes.user_rights import UserRights
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.backoff import Backoff

_log = structlog.get_logger(__name__)
# How often at most it is looked whether a request that has to wait may go on, and when the server is asked in any case.
_LOOK_S = 1.0
_AGAIN_S = 60.0
# Of one request's pods. Coverage works on 256 operations at once: room is left for others' requests.
_AT_ONCE = 128


def _now() -> datetime:
    return datetime.now(UTC)


class RequestWork:
    """Follows TraceRequests, each in one task at a time."""

    def __init__(
        self,
        cluster: Cluster,
        rights: UserRights,
        watched: Watched,
        operations: Operations,
        *,
        sampling: Sampling,
        min_gain: float,
        min_gain_per_core_second: float,
        node_patience_s: float,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._cluster = cluster
        self._watched = watched
        self._acceptance = Acceptance(cluster, rights, watched, ExpectedRates(operations), sampling)
        self._operations = operations
        self._sessions = SessionWork(cluster, operations, now, node_patience_s=node_patience_s)
        self._rounds = PodRounds(
            cluster,
            operations,
            self._sessions,
            min_gain=min_gain,
            min_gain_per_core_second=min_gain_per_core_second,
        )
        self._now = now
        self._accepting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._following: dict[str, asyncio.Task[None]] = {}

    async def follow(self, namespace: str, name: str, uid: str, tell: Tell) -> None:
        """Returns when the object is gone, is being deleted, or `stop` was called.

        `tell` gets what happens to the request and to its sessions.
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

    async def stop(self, namespace: str, name: str, uid: str) -> None:
        """Ends everything that was begun for this request; what was recorded until now is stored."""
        task = self._following.get(uid)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        request = await self._cluster.get(REQUESTS, namespace, name)
        # Nothing begins before it is written down that it may.
        if request is not None and request["metadata"]["uid"] == uid and is_true(request.get("status"), ACCEPTED):
            await self._operations.stop(f"{uid}.", from_timestamp(request["metadata"]["creationTimestamp"]))

    async def _follow(self, namespace: str, name: str, uid: str, tell: Tell) -> None:
        pauses, refusals = Backoff(0.2, 5.0), Refusals()
        request: Object | None = None
        while True:
            try:
                request = await self._cluster.get(REQUESTS, namespace, name)
                if request is None or request["metadata"]["uid"] != uid or "deletionTimestamp" in request["metadata"]:
                    return
                await self._step(request, tell)
                pauses.reset()
            except Exception as error:
                why = refusals.meant(error)
                if why and request is not None:
                    tell(request, "Warning", REFUSED, why)
                    _log.warning("the API server refuses", request=f"{namespace}/{name}", why=why)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                if not may_pass(error):
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
            verdict = await self._acceptance.judge(request)
            before = [one for one in (request.get("status") or {}).get("conditions") or [] if one["type"] == ACCEPTED]
            news = [(one["reason"], one["message"]) for one in before] != [(verdict.reason, verdict.message)]
            if news:
                status = status_of(verdict, request, self._now())
                version = metadata["resourceVersion"]
                await self._cluster.patch_status(
                    REQUESTS, metadata["namespace"], metadata["name"], status, version=version
                )
        if news:
            tell(request, "Normal" if verdict.kind == ACCEPTED else "Warning", verdict.reason, verdict.message)
        if not verdict.kind:
            await self._wait(request, verdict)

    async def _wait(self, request: Object, verdict: Verdict) -> None:
        """Returns when the verdict may be another one by now."""
        end = asyncio.get_running_loop().time() + _AGAIN_S
        while (left := end - asyncio.get_running_loop().time()) > 0:
            # However much changes in the cluster, nobody looks more often.
            await asyncio.sleep(_LOOK_S)
            news = self._watched.news
            if verdict.reason == ADMISSION_MISSING or await self._acceptance.look(request) != verdict:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), left)

    async def _record(self, request: Object, tell: Tell) -> None:
        progress = RequestProgress(self._cluster, request, self._now)
        if not is_true(request["status"], COMPLETE):
            await progress.begin()
        telling = asyncio.create_task(progress.follow())
        try:
            if "rounds" in request["spec"]:
                await self._rounds.run(request, progress, tell)
            else:
                await self._at_once(request, progress, tell)
            _, _, reason, message = await progress.end()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        tell(request, "Normal" if all(one.ok for one in progress.outcomes) else "Warning", reason, message)

    async def _at_once(self, request: Object, progress: RequestProgress, tell: Tell) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(place: Place) -> None:
            async with slots:
                waits = partial(progress.waits, place["name"])
                progress.ended(place, await self._sessions.run(request, place, tell, waits))

        try:
            async with asyncio.TaskGroup() as group:
                for place in request["status"]["sessions"]:
                    group.create_task(one(place))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _expire(self, request: Object) -> None:
        metadata, status = request["metadata"], request["status"]
        asked = (status.get("plan") or request["spec"]).get("ttlSecondsAfterFinished")
        if asked is None:
            # One that was refused has no plan.
            asked = (await self._acceptance.policy(metadata["namespace"])).ttl_s
        age = (self._now() - from_timestamp(status["completionTime"])).total_seconds()
        if age < asked:
            await asyncio.sleep(min(asked - age, 3600.0))
            return
        await self._cluster.delete(REQUESTS, metadata["namespace"], metadata["name"], metadata["uid"])
