"""Whether a TraceRequest may go on, and with which pods: decided once, and written down before anything begins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from permille.coverage.domain.kubernetes.conditions import (
    ACCEPTED,
    FAILED,
    camel_case,
    timestamp,
    with_condition,
)
from permille.coverage.domain.kubernetes.instances import Container, instances
from permille.coverage.domain.kubernetes.labels import label_selector
from permille.coverage.domain.kubernetes.wish import Policy, Wish, policy_of, wish_of
from permille.coverage.domain.spatial_sampler import Instance, spread
from permille.coverage.domain.target import Target
from permille.coverage.service.inventory import Inventory
from permille.coverage.service.kubernetes.cluster import ADMISSION, POLICIES, REQUESTS, Cluster, Object
from permille.coverage.service.kubernetes.pod_inventory import PodInventory
from permille.coverage.service.kubernetes.watched import Watched, known
from permille.mesh.errors import NotFound, PermilleError, Unavailable

ADMISSION_MISSING = "AdmissionPolicyMissing"
_POLICY = "default"
_LONGEST_NAME = 240


@dataclass(frozen=True)
class Verdict:
    """`kind`: ACCEPTED, FAILED, or "" for not yet; with what to write into the status."""

    kind: str
    reason: str
    message: str
    decided: Mapping[str, Any]


async def judge(cluster: Cluster, watched: Watched, request: Object) -> Verdict:
    """Looks at the rights, the quota and the pods. Raises what `Cluster` raises."""
    metadata = request["metadata"]
    namespace = metadata["namespace"]
    since = await cluster.admission_since()
    if not since:
        return _waits(
            ADMISSION_MISSING,
            f"the ValidatingAdmissionPolicy {ADMISSION} and its binding are not in force, so nobody has asked whether "
            "the user may get these pods; an administrator has to install them (they are in the Helm chart)",
        )
    if metadata["creationTimestamp"] < since:
        return _fails(
            "NotChecked", "made before the admission policy that checks the user's rights; make the request again"
        )
    policy = await cluster.get(POLICIES, namespace, _POLICY)
    others = [known(one) for one in await cluster.all_of(REQUESTS, namespace)]
    active = sum(one.active and one.uid != metadata["uid"] for one in others)
    return await _decided(watched, request, policy_of(policy["spec"] if policy else None), active)


async def look(watched: Watched, request: Object) -> Verdict:
    """What `judge` would probably say, from what is known: it costs no call."""
    metadata = request["metadata"]
    namespace = metadata["namespace"]
    policy = watched.policies.of(namespace).get(_POLICY, Policy())
    return await _decided(watched, request, policy, watched.active(namespace, metadata["uid"]))


async def _decided(watched: Watched, request: Object, policy: Policy, active: int) -> Verdict:
    metadata, target = request["metadata"], request["spec"]["target"]
    try:
        wish = wish_of(request["spec"], policy)
    except PermilleError as error:
        return _fails(camel_case(error.reason), f"{error.message}; {error.help}")
    if active >= policy.active_requests:
        return _waits(
            "QuotaActiveRequests",
            f"{active} requests of this namespace are active, as many as its TracePolicy allows; "
            "this one begins when one of them ends",
        )
    inventory: Inventory = PodInventory(watched, metadata["namespace"], target.get("container", ""))
    try:
        found = instances(await inventory.nodes(_target(metadata["namespace"], target)))
    except NotFound as error:
        return _waits("NoInstance", f"nothing to record yet: {error.message}")
    except Unavailable as error:
        return _waits(camel_case(error.reason), error.message)
    chosen = [one for one, _ in zip(spread(found), range(wish.replicas), strict=False)]
    message = f"{len(chosen)} of {len(found)} running pods on {len({one.node.name for one in chosen})} nodes"
    return Verdict(ACCEPTED, "Accepted", message, _status(metadata, wish, chosen))


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


def _target(namespace: str, target: Mapping[str, Any]) -> Target:
    if "podName" in target:
        return Target(pod=f"{namespace}/{target['podName']}")
    return Target(selector=label_selector(target["selector"]))


def _status(metadata: Mapping[str, Any], wish: Wish, chosen: Sequence[Instance]) -> Object:
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
                "name": _session_name(metadata, container),
                "podName": container.pod,
                "podUID": container.pod_uid,
                "nodeName": one.node.name,
                "container": container.container,
                "containerID": container.container_id,
            }
            for one in chosen
            if isinstance(container := one.process, Container)
        ],
    }


def _session_name(metadata: Mapping[str, Any], one: Container) -> str:
    """Another one for another request of the same name."""
    digest = hashlib.sha256(f"{metadata['uid']}/{one.pod_uid}".encode()).hexdigest()[:10]
    return f"{metadata['name'][:_LONGEST_NAME]}-{digest}"


def _waits(reason: str, message: str) -> Verdict:
    return Verdict("", reason, message, {})


def _fails(reason: str, message: str) -> Verdict:
    return Verdict(FAILED, reason, message, {})
