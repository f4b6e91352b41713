"""What is kept of the API server's objects: of pods and nodes only what choosing needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ZONE = "topology.kubernetes.io/zone"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
# Deployments mark their pods by the first, StatefulSets and DaemonSets by the second.
_TEMPLATE, _REVISION = "pod-template-hash", "controller-revision-hash"


@dataclass(frozen=True)
class Running:
    """A running container: its id without the runtime's name, and what of its image tells builds apart."""

    identity: str
    image: str


@dataclass(frozen=True)
class Pod:
    """A pod; `owner` is what its replicas have in common: `Deployment/web`; `revision`: of the owner's template."""

    name: str
    uid: str
    node: str = ""
    owner: str = ""
    revision: str = ""
    deleted: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[str, ...] = ()
    default_container: str = ""
    running: Mapping[str, Running] = field(default_factory=dict)


def pod_of(body: Mapping[str, Any]) -> Pod:
    """A pod as the API server gives it."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    labels = metadata.get("labels") or {}
    names = tuple(container["name"] for container in spec.get("containers") or [])
    statuses = (body.get("status") or {}).get("containerStatuses") or []
    return Pod(
        metadata["name"],
        metadata["uid"],
        node=spec.get("nodeName") or "",
        owner=_owner(metadata, labels),
        revision=labels.get(_TEMPLATE) or labels.get(_REVISION) or "",
        deleted="deletionTimestamp" in metadata,
        labels=labels,
        containers=names,
        default_container=(metadata.get("annotations") or {}).get(_DEFAULT_CONTAINER) or next(iter(names), ""),
        running={one["name"]: found for one in statuses if (found := _running(one))},
    )


def zone_of(node: Mapping[str, Any]) -> str:
    """The zone of a node as the API server gives it; "" for none."""
    return str((node["metadata"].get("labels") or {}).get(ZONE) or "")


def _owner(metadata: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    owner = next((one for one in metadata.get("ownerReferences") or [] if one.get("controller")), None)
    if owner is None:
        return ""
    kind, name = str(owner["kind"]), str(owner["name"])
    # A Deployment names its ReplicaSets so: no right to read them is needed.
    deployment = name.removesuffix(f"-{labels.get(_TEMPLATE)}")
    return f"Deployment/{deployment}" if kind == "ReplicaSet" and deployment != name else f"{kind}/{name}"


def _running(status: Mapping[str, Any]) -> Running | None:
    identity = str(status.get("containerID") or "").partition("://")[2]
    if not identity or "running" not in (status.get("state") or {}):
        return None
    # `docker.io/library/web@sha256:…`, or the digest alone.
    return Running(identity, str(status.get("imageID") or "").rpartition("@")[2])
