"""Which containers of which pods a TraceRequest means, and which of them are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class Instance:
    """One running container of one pod. `container_id` is without the runtime's name."""

    pod: str
    pod_uid: str
    node: str
    container: str
    container_id: str


def instances(pods: Iterable[Mapping[str, Any]], container: str = "") -> tuple[list[Instance], list[str]]:
    """The running containers among pods (as the API server gives them), and why the other pods have none.

    `container` "": the pod's default container (kubectl.kubernetes.io/default-container), else its first one.
    """
    found: list[Instance] = []
    without: list[str] = []
    for pod in pods:
        answer = _instance(pod, container)
        if isinstance(answer, Instance):
            found.append(answer)
        else:
            without.append(f"pod {pod['metadata']['name']} {answer}")
    return found, without


def spread(candidates: Sequence[Instance], at_most: int) -> list[Instance]:
    """At most so many of them, as few as possible on one node; the same of the same candidates, in whatever order."""
    left = sorted(candidates, key=lambda one: (one.pod, one.pod_uid))
    taken: Counter[str] = Counter()
    chosen: list[Instance] = []
    while left and len(chosen) < at_most:
        next_one = min(left, key=lambda one: (taken[one.node], one.pod, one.pod_uid))
        left.remove(next_one)
        taken[next_one.node] += 1
        chosen.append(next_one)
    return chosen


def label_selector(selector: Mapping[str, Any]) -> str:
    """A LabelSelector as the API server's query parameter labelSelector takes it."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], ",".join(expression.get("values") or [])
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return ",".join(terms)


def _instance(pod: Mapping[str, Any], wanted: str) -> Instance | str:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "is being deleted"
    node = spec.get("nodeName")
    if not node:
        return "is not on a node yet"
    names = [container["name"] for container in spec.get("containers") or []]
    name = wanted or (metadata.get("annotations") or {}).get(_DEFAULT_CONTAINER) or names[0]
    if name not in names:
        return f"has no container {name}, only {', '.join(names)}"
    for container in status.get("containerStatuses") or []:
        identity = str(container.get("containerID") or "").partition("://")[2]
        if container["name"] == name and identity and "running" in (container.get("state") or {}):
            return Instance(metadata["name"], metadata["uid"], node, name, identity)
    return f"has no running container {name}"
