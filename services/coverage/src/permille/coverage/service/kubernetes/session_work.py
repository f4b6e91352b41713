"""One TraceSession: one container on one node, one coverage operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import structlog
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.kubernetes.conditions import COMPLETE, FAILED, camel_case, is_true, with_conditions
from permille.coverage.domain.kubernetes.turns import Place
from permille.coverage.service.kubernetes.cluster import (
    GROUP,
    REFUSED,
    SESSIONS,
    VERSION,
    Cluster,
    Object,
    Refusals,
    is_transient,
    may_pass,
)
from permille.coverage.service.kubernetes.operations import Operation, Operations
from permille.mesh.backoff import Backoff
from permille.mesh.errors import PermilleError
from permille.mesh.operations import operation_error

_log = structlog.get_logger(__name__)
_START_AGAIN_S = 2.0
_TOLD_AGAIN = timedelta(seconds=1)
_PURPOSES = {
    "OnDemand": coverage_pb2.PURPOSE_ON_DEMAND,
    "Anomaly": coverage_pb2.PURPOSE_ANOMALY,
    "Profiling": coverage_pb2.PURPOSE_PROFILING,
}
# Of what, and type, reason and message of an event.
Tell = Callable[[Object, str, str, str], None]
# Over by itself when others are done.
_WAITED_FOR = ("ALREADY_TRACED", "QUOTA_IN_USE", "CALLER_REQUESTS", "CALL_RATE")
# Of an operation of one container with these nothing was recorded.
_BEGUN_ANEW = ("ALREADY_TRACED", "QUOTA_IN_USE")
_NODE_AWAY = "NODE_NOT_FOUND"
_RETENTION = "ttlSecondsAfterRecorded"
_LONGEST = "longestPeriodMilliseconds"


@dataclass(frozen=True)
class Outcome:
    """How one session ended; `recordings` are `nodes/<node>/sessions/<id>`."""

    ok: bool
    reason: str
    message: str
    recordings: tuple[str, ...] = ()


class SessionWork:
    """Begun again by another process it finds what the first one began, by names and request_ids."""

    def __init__(
        self, cluster: Cluster, operations: Operations, now: Callable[[], datetime], *, node_patience_s: float
    ) -> None:
        self._cluster = cluster
        self._operations = operations
        self._now = now
        self._node_patience_s = node_patience_s

    async def run(self, request: Object, place: Place, tell: Tell, waits: Callable[[str], None]) -> Outcome:
        """Takes one place of an accepted request to its end, however often the API server or coverage are away.

        `tell` gets what happens to the TraceSession; `waits` why nothing goes on for now, and "" when it does.
        """
        pauses, refusals = Backoff(0.2, 5.0), Refusals()
        while True:
            try:
                return await self._run(request, place, tell, waits)
            except Exception as error:
                # Here, so that the other places go on.
                why = refusals.meant(error)
                if why:
                    tell(request, "Warning", REFUSED, f"{place['name']}: {why}")
                    return Outcome(False, REFUSED, why)
                if not may_pass(error):
                    raise
                _log.warning("cannot go on now; trying again", session=place["name"], error=str(error))
                await pauses.pause()

    async def _run(self, request: Object, place: Place, tell: Tell, waits: Callable[[str], None]) -> Outcome:
        body = session_object(request, place)
        namespace, name = request["metadata"]["namespace"], place["name"]
        existing = await self._cluster.create(SESSIONS, namespace, body)
        existing = existing or await self._cluster.get(SESSIONS, namespace, name) or body
        ended = _outcome(existing)
        if ended is not None:
            return ended
        conditions: list[dict[str, Any]] = list((existing.get("status") or {}).get("conditions") or [])

        version = existing["metadata"].get("resourceVersion", "")

        async def write(status: Object, condition: tuple[str, bool, str, str]) -> None:
            nonlocal conditions, version
            conditions = with_conditions(conditions, condition, now=self._now())
            written = {"waiting": None, **status, "conditions": conditions}
            # A leader that stood still must not write over how its successor has ended it.
            found = await self._cluster.patch_status(SESSIONS, namespace, name, written, version=version)
            version = found["metadata"]["resourceVersion"] if found else version

        async def failed(error: PermilleError) -> Outcome:
            # Without its help, which could name processes of other namespaces.
            outcome = Outcome(False, camel_case(error.reason), error.message)
            await write({"stage": "FAILED"}, (FAILED, True, outcome.reason, outcome.message))
            tell(existing, "Warning", outcome.reason, outcome.message)
            return outcome

        async def waiting(error: PermilleError) -> None:
            reason = camel_case(error.reason)
            waits(error.message)
            before = {(one["reason"], one["message"]) for one in conditions}
            if reason not in {known for known, _ in before}:
                tell(existing, "Normal", reason, error.message)
            if (reason, error.message) not in before:
                await write({"stage": "WAITING"}, (COMPLETE, False, reason, error.message))

        async def show(operation: Operation) -> None:
            await write(_status(operation), (COMPLETE, False, _stage(operation), _told(operation)))

        try:
            for request_id in _attempts(body["spec"]["requestID"]):
                operation = await self._begun(namespace, body["spec"], request_id, waiting)
                waits("")
                if "operation" not in (existing.get("status") or {}):
                    tell(existing, "Normal", "Started", operation.name)
                operation = await self._done(operation, show, waits)
                why = operation_error(operation)
                if why is None or why.reason not in _BEGUN_ANEW:
                    break
                await waiting(why)
                await asyncio.sleep(_START_AGAIN_S)
        except PermilleError as error:
            if is_transient(error):
                raise
            return await failed(error)
        if why is not None:
            return await failed(why)
        result = coverage_pb2.CoverageResult()
        operation.response.Unpack(result)
        recordings = tuple(result.sessions)
        outcome = Outcome(True, "Decoded", f"recorded and decoded: {', '.join(recordings)}", recordings)
        status = {**_status(operation), "stage": "DONE", "recordings": list(recordings)}
        await write(status, (COMPLETE, True, outcome.reason, outcome.message))
        tell(existing, "Normal", outcome.reason, outcome.message)
        return outcome

    async def _begun(
        self,
        namespace: str,
        spec: Mapping[str, Any],
        request_id: str,
        waiting: Callable[[PermilleError], Awaitable[None]],
    ) -> Operation:
        """The operation; while another recording of the same process, or others' use of the quota, goes on it waits.

        A controller that is started again, as in an upgrade, is waited for so long as its node may be without one.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + self._node_patience_s
        while True:
            try:
                return await self._operations.start(request_id, wish(namespace, spec))
            except PermilleError as error:
                if error.reason not in _WAITED_FOR and not (error.reason == _NODE_AWAY and clock() < end):
                    raise
                await waiting(error)
                await asyncio.sleep(error.retry_after_s or _START_AGAIN_S)

    async def _done(
        self, operation: Operation, show: Callable[[Operation], Awaitable[None]], waits: Callable[[str], None]
    ) -> Operation:
        """The operation when it is done; shown until then at each stage or wait, within one about once a second."""
        told, at = ("", ""), self._now() - _TOLD_AGAIN
        while not operation.done:
            stage, now = (operation.progress.stage, operation.progress.waiting), self._now()
            if stage != told or now - at >= _TOLD_AGAIN:
                waits(operation.progress.waiting)
                await show(operation)
                told, at = stage, now
            operation = await self._operations.changed(operation)
        waits("")
        return operation


def session_object(request: Object, place: Place) -> Object:
    """The TraceSession of one place, or of one round, of an accepted request: always the same one."""
    metadata, plan = request["metadata"], request["status"]["plan"]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TraceSession",
        "metadata": {
            "name": place["name"],
            "labels": {f"{GROUP}/request-uid": metadata["uid"]},
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": "TraceRequest",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "requestName": metadata["name"],
            "requestUID": metadata["uid"],
            "requestID": f"{metadata['uid']}.{place.get('turn', place['podUID'])}",
            "nodeName": place["nodeName"],
            "podName": place["podName"],
            "podUID": place["podUID"],
            "container": place["container"],
            "containerID": place["containerID"],
            "purpose": request["spec"]["purpose"],
            "periodMilliseconds": place.get("periodMilliseconds", plan["periodMilliseconds"]),
            "budgetBytes": plan["budgetBytes"],
            **({"priority": request["spec"]["priority"]} if "priority" in request["spec"] else {}),
            **{key: plan[key] for key in ("weights", "quota", _RETENTION, _LONGEST) if key in plan},
        },
    }


def wish(namespace: str, spec: Mapping[str, Any]) -> coverage_pb2.CoverageRequest:
    """What coverage is asked for: the same for the same spec, as its request_id demands."""
    return coverage_pb2.CoverageRequest(
        target=target(spec),
        purpose=_PURPOSES[spec["purpose"]],
        period_ms=spec["periodMilliseconds"],
        budget_bytes=spec["budgetBytes"],
        namespace=namespace,
        # All pods of one request are about one thing.
        cause=spec["requestUID"],
        priority=spec.get("priority"),
        weights=coverage_pb2.Weights(**spec["weights"]) if "weights" in spec else None,
        quota=coverage_pb2.NamespaceQuota(**spec["quota"]) if "quota" in spec else None,
        retention_s=spec.get(_RETENTION, 0),
        longest_period_ms=spec.get(_LONGEST, 0),
    )


def target(spec: Mapping[str, Any]) -> coverage_pb2.Target:
    """The container on its node: the controller there knows which processes are in it."""
    return coverage_pb2.Target(node=f"nodes/{spec['nodeName']}", container_id=spec["containerID"])


def _attempts(request_id: str) -> Iterator[str]:
    """The same for each operator, which finds the earlier ones' operations by them."""
    yield request_id
    for attempt in count(2):
        yield f"{request_id}.{attempt}"


def _outcome(session: Object) -> Outcome | None:
    status = session.get("status") or {}
    for kind in (COMPLETE, FAILED):
        if is_true(status, kind):
            (condition,) = (one for one in status["conditions"] if one["type"] == kind)
            recordings = tuple(status.get("recordings") or ())
            return Outcome(kind == COMPLETE, condition["reason"], condition["message"], recordings)
    return None


def _stage(operation: Operation) -> str:
    return camel_case(operation.progress.stage or "STARTED")


def _told(operation: Operation) -> str:
    progress = operation.progress
    told = f"{progress.completed} of {progress.total} {progress.unit}" if progress.total else operation.name
    return f"{told}; waits: {progress.waiting}" if progress.waiting else told


def _status(operation: Operation) -> Object:
    progress = operation.progress
    return {
        "operation": operation.name,
        "stage": progress.stage,
        "completed": progress.completed,
        "total": progress.total,
        "unit": progress.unit,
        # Null takes it out of the status; its last progress may still tell of a wait when an operation is done.
        "waiting": None if operation.done else progress.waiting or None,
    }
