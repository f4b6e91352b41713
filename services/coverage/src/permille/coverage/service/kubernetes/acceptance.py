"""Whether a TraceRequest may go on, and with which pods: decided once, and written down before anything begins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from permille.coverage.domain.kubernetes.conditions import (
    ACCEPTED,
    FAILED,
    camel_case,
    is_finished,
    is_true,
    timestamp,
    with_condition,
)
from permille.coverage.domain.kubernetes.instances import Instance, instances, label_selector, spread
from permille.coverage.domain.kubernetes.wish import Wish, policy_of, wish_of
from permille.coverage.service.kubernetes.cluster import ADMISSION, POLICIES, REQUESTS, Cluster, Object
from permille.mesh.errors import PermilleError

_POLICY = "default"
_MOST_TOLD = 5
_LONGEST_NAME = 240


@dataclass(frozen=True)
class Verdict:
    """`kind`: ACCEPTED, FAILED, or "" for not yet; with what to write into the status."""

    kind: str
    reason: str
    message: str
    decided: Mapping[str, Any]


async def judge(cluster: Cluster, request: Object) -> Verdict:
    """Looks at the rights, the quota and the pods. Raises what `Cluster` raises."""
    metadata = request["metadata"]
    namespace = metadata["namespace"]
    since = await cluster.admission_since()
    if not since:
        return _waits(
            "AdmissionPolicyMissing",
            f"the ValidatingAdmissionPolicy {ADMISSION} and its binding are not in force, so nobody has asked whether "
            "the user may get these pods; an administrator has to install them (they are in the Helm chart)",
        )
    if metadata["creationTimestamp"] < since:
        return _fails(
            "NotChecked", "made before the admission policy that checks the user's rights; make the request again"
        )
    policy_object = await cluster.get(POLICIES, namespace, _POLICY)
    policy = policy_of(policy_object["spec"] if policy_object else None)
    try:
        wish = wish_of(request["spec"], policy)
    except PermilleError as error:
        return _fails(camel_case(error.reason), f"{error.message}; {error.help}")
    active = [one for one in await cluster.all_of(REQUESTS, namespace) if _is_active(one, metadata["uid"])]
    if len(active) >= policy.active_requests:
        return _waits(
            "QuotaActiveRequests",
            f"{len(active)} requests of this namespace are active, as many as its TracePolicy allows; "
            "this one begins when one of them ends",
        )
    target = request["spec"]["target"]
    found, without = instances(await _pods(cluster, namespace, target), target.get("container", ""))
    if not found:
        told = "; ".join(without[:_MOST_TOLD]) or "no such pod is in this namespace"
        return _waits("NoInstance", f"nothing to record yet: {told}")
    chosen = spread(found, wish.replicas)
    message = f"{len(chosen)} of {len(found)} running pods on {len({one.node for one in chosen})} nodes"
    return Verdict(ACCEPTED, "Accepted", message, _decided(metadata, wish, chosen))


def status_of(verdict: Verdict, request: Object, now: datetime) -> Object:
    """The status to write."""
    status = request.get("status") or {}
    generation = request["metadata"]["generation"]
    conditions = with_condition(
        status.get("conditions") or [],
        ACCEPTED,
        verdict.kind == ACCEPTED,
        verdict.reason,
        verdict.message,
        now=now,
        generation=generation,
    )
    written: Object = {"observedGeneration": generation, **verdict.decided}
    if verdict.kind == ACCEPTED:
        written["startTime"] = timestamp(now)
    if verdict.kind == FAILED:
        conditions = with_condition(
            conditions, FAILED, True, verdict.reason, verdict.message, now=now, generation=generation
        )
        written["completionTime"] = timestamp(now)
    return {**written, "conditions": conditions}


def _is_active(request: Object, but: str) -> bool:
    status = request.get("status")
    return request["metadata"]["uid"] != but and is_true(status, ACCEPTED) and not is_finished(status)


async def _pods(cluster: Cluster, namespace: str, target: Mapping[str, Any]) -> list[Object]:
    if "podName" in target:
        pod = await cluster.pod(namespace, target["podName"])
        return [pod] if pod else []
    return await cluster.pods(namespace, label_selector(target["selector"]))


def _decided(metadata: Mapping[str, Any], wish: Wish, chosen: list[Instance]) -> Object:
    return {
        "replicas": len(chosen),
        "finishedReplicas": 0,
        "failedReplicas": 0,
        "plan": {
            "periodMilliseconds": wish.period_ms,
            "budgetBytes": wish.budget_bytes,
            "ttlSecondsAfterFinished": wish.ttl_s,
            **({"weights": dict(wish.weights)} if wish.weights else {}),
        },
        "sessions": [
            {
                "name": _session_name(metadata, one),
                "podName": one.pod,
                "podUID": one.pod_uid,
                "nodeName": one.node,
                "container": one.container,
                "containerID": one.container_id,
            }
            for one in chosen
        ],
    }


def _session_name(metadata: Mapping[str, Any], one: Instance) -> str:
    """Another one for another request of the same name."""
    digest = hashlib.sha256(f"{metadata['uid']}/{one.pod_uid}".encode()).hexdigest()[:10]
    return f"{metadata['name'][:_LONGEST_NAME]}-{digest}"


def _waits(reason: str, message: str) -> Verdict:
    return Verdict("", reason, message, {})


def _fails(reason: str, message: str) -> Verdict:
    return Verdict(FAILED, reason, message, {})
