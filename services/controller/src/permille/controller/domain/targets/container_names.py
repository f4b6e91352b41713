r"""What the names of cgroups say of containers and pods.

One component of a path names a container by its id of 64 hexadecimal digits:

| who made it | component |
| --- | --- |
| Docker, containerd, CRI-O with the cgroupfs driver | `ID` |
| with the systemd driver | `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope` |
| containerd told to use systemd while the kubelet does not | `kubepods-burstable-podUID.slice:cri-containerd:ID` |

and one a pod by its UID, below `kubepods` and, for other classes than Guaranteed, `burstable` or `besteffort`:
`podUID` (cgroupfs) or `kubepods-burstable-podUID.slice` (systemd, where every `-` of the UID is a `_`). A static pod's
UID is a digest without dashes (Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go and helpers).
Supervisors of containers (`crio-conmon-ID.scope`, `libpod-conmon-ID.scope`) are no part of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CONTAINER = re.compile(r"(?:(?P<maker>.+)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
POD = re.compile(
    r"(?:.+-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?::.*)?"
)
SUPERVISOR = "conmon"


@dataclass(frozen=True)
class Container:
    """One container on the way to a process; `pod` is the UID of the pod around it, or "" """

    id: str
    pod: str


def containers_of(path: str) -> tuple[Container, ...]:
    """Those that a cgroup is in, the outermost first: a node of a cluster may itself be a container."""
    found = []
    pod = ""
    for component in path.split("/"):
        pod = pod_of(component) or pod
        match = CONTAINER.fullmatch(component)
        if match and not (match["maker"] or "").endswith(SUPERVISOR):
            found.append(Container(match["id"], pod))
    return tuple(found)


def pods_of(path: str) -> tuple[str, ...]:
    """The UIDs of the pods that a cgroup is in, with dashes."""
    return tuple(uid for component in path.split("/") if (uid := pod_of(component)))


def pod_of(component: str) -> str:
    match = POD.fullmatch(component)
    return match["uid"].replace("_", "-") if match else ""
