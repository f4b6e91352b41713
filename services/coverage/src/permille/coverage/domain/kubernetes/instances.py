"""Which containers of which pods a target means, as the inventory's nodes and processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from permille.coverage.domain.kubernetes.pods import Pod
from permille.coverage.domain.node import GroupOnNode, Listing, Node, Process
from permille.coverage.domain.spatial_sampler import Instance
from permille.mesh.errors import NotFound

_MOST_TOLD = 5


@dataclass(frozen=True)
class Container(Process):
    """A running container, of which the API server knows no processes.

    `pid`: its place in the order of pods' names; `name`: what its replicas have in common; `version`: that and the
    image's digest, else the revision of the pod's template; `session`: the TraceSession recording it now.
    """

    pod: str = ""
    pod_uid: str = ""
    container: str = ""
    container_id: str = ""


def listing(
    pods: Iterable[Pod], zones: Mapping[str, str], recorded: Mapping[str, tuple[str, str]], *, container: str = ""
) -> Listing:
    """The nodes with the running containers among pods, and with whatever else is being recorded on them.

    `container` "": the pod's default container. `zones`: by node. `recorded`: node and TraceSession by container id.
    Raises `NotFound` (TARGET_NOT_FOUND), with the reasons, when none is running.
    """
    found: dict[str, list[Container]] = defaultdict(list)
    without: list[str] = []
    ids: set[str] = set()
    for number, pod in enumerate(sorted(pods, key=lambda one: (one.name, one.uid))):
        answer = _container(pod, container, number + 1, recorded)
        if isinstance(answer, Container):
            found[pod.node].append(answer)
            ids.add(answer.container_id)
        else:
            without.append(f"pod {pod.name} {answer}")
    if not found:
        raise NotFound(
            "; ".join(without[:_MOST_TOLD]) or "no such pod is in this namespace",
            reason="TARGET_NOT_FOUND",
            help="check the name or the labels, and whether the pods run",
        )
    others: dict[str, list[Process]] = defaultdict(list)
    for identity, (node, session) in recorded.items():
        if identity not in ids:
            others[node].append(Process(0, "", session))
    return Listing(
        tuple(
            Node(
                node,
                recordable=(*own, *others[node]),
                zone=zones.get(node, ""),
                group=GroupOnNode(frozenset(one.pid for one in own), found="pods"),
            )
            for node, own in sorted(found.items())
        )
    )


def instances(found: Listing) -> list[Instance]:
    """The containers that a listing's target means."""
    return [
        Instance(node, process) for node in found.nodes for process in node.recordable if process.pid in node.group.pids
    ]


def _container(pod: Pod, wanted: str, number: int, recorded: Mapping[str, tuple[str, str]]) -> Container | str:
    if pod.deleted:
        return "is being deleted"
    if not pod.node:
        return "is not on a node yet"
    name = wanted or pod.default_container
    if name not in pod.containers:
        return f"has no container {name}, only {', '.join(pod.containers)}"
    running = pod.running.get(name)
    if running is None:
        return f"has no running container {name}"
    owner = pod.owner or f"container {name}"
    return Container(
        number,
        owner,
        recorded.get(running.identity, ("", ""))[1],
        version=f"{owner} {running.image or pod.revision}".strip(),
        pod=pod.name,
        pod_uid=pod.uid,
        container=name,
        container_id=running.identity,
    )
