"""What is written into a TraceRequest's status when it is accepted, refused, or has to wait."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from permille.coverage.domain.kubernetes.choosing import not_chosen
from permille.coverage.domain.kubernetes.conditions import ACCEPTED, FAILED, timestamp, with_condition
from permille.coverage.domain.kubernetes.instances import Container
from permille.coverage.domain.kubernetes.turns import round_of
from permille.coverage.domain.kubernetes.wish import Wish
from permille.coverage.domain.spatial_sampler import Choice
from permille.coverage.service.kubernetes.cluster import Object

# With a digest, and with the number of a round.
_LONGEST_NAME = 239
# Names of those that are not recorded, for each reason; all are counted.
_MOST_NAMED = 100
_MOST_REASONS = 3


@dataclass(frozen=True)
class Verdict:
    """`kind`: ACCEPTED, FAILED, or "" for not yet; with what to write into the status."""

    kind: str
    reason: str
    message: str
    decided: Mapping[str, Any]


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


def accepted(metadata: Mapping[str, Any], wish: Wish, choices: Sequence[Choice]) -> Verdict:
    """With the pods chosen, each with the reason."""
    places = [
        {
            "name": _session_name(metadata, container),
            "podName": container.pod,
            "podUID": container.pod_uid,
            "nodeName": choice.instance.node.name,
            "container": container.container,
            "containerID": container.container_id,
            "reason": choice.reason,
        }
        for choice in choices
        if choice.chosen and isinstance(container := choice.instance.process, Container)
    ]
    passed_over = not_chosen(choices)
    told = "".join(f"; {told}" for told in reasons(passed_over))
    decided: Object = {
        "replicas": len(places),
        "finishedReplicas": 0,
        "failedReplicas": 0,
        "plan": {
            "periodMilliseconds": wish.period_ms,
            "longestPeriodMilliseconds": wish.longest_ms,
            "budgetBytes": wish.budget_bytes,
            "ttlSecondsAfterFinished": wish.ttl_s,
            **({"ttlSecondsAfterRecorded": wish.retention_s} if wish.retention_s else {}),
            **({"weights": dict(wish.weights)} if wish.weights else {}),
            **({"quota": dict(wish.quota)} if wish.quota else {}),
        },
        "sessions": places,
        **({"rounds": [round_of(places[0], 1, wish.period_ms)]} if wish.rounds else {}),
        "notChosen": [
            {"reason": reason, "pods": len(pods), "podNames": pods[:_MOST_NAMED]}
            for reason, pods in passed_over.items()
        ],
    }
    nodes = len({place["nodeName"] for place in places})
    message = f"{len(places)} of {len(choices)} running pods on {nodes} nodes{told}"
    return Verdict(ACCEPTED, "Accepted", message, decided)


def reasons(passed_over: Mapping[str, Sequence[str]]) -> list[str]:
    """For people: those of the most pods."""
    ordered = sorted(passed_over.items(), key=lambda item: -len(item[1]))
    told = [f"{len(pods)} not: {reason}" for reason, pods in ordered[:_MOST_REASONS]]
    rest = sum(len(pods) for _, pods in ordered[_MOST_REASONS:])
    return [*told, f"{rest} not for other reasons"] if rest else told


def waits(reason: str, message: str) -> Verdict:
    """Not yet."""
    return Verdict("", reason, message, {})


def refused(reason: str, message: str) -> Verdict:
    """Never."""
    return Verdict(FAILED, reason, message, {})


def _session_name(metadata: Mapping[str, Any], one: Container) -> str:
    """Another one for another request of the same name."""
    digest = hashlib.sha256(f"{metadata['uid']}/{one.pod_uid}".encode()).hexdigest()[:10]
    # What it is cut at may be a dot or a dash, behind which no name goes on with a dash.
    return f"{metadata['name'][:_LONGEST_NAME].rstrip('.-')}-{digest}"
