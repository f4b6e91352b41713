"""Which processes a cgroup, a container or a pod means on this node, and if none, why not.

Labels are not in these names: label_selector.py has them from the container runtime.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from permille.controller.domain.cgroup_tree import PROC, CgroupTree
from permille.controller.domain.targets import cgroup_folders, pod_names
from permille.controller.domain.targets.container_names import Container, containers_of, pods_of
from permille.controller.domain.targets.process_cgroups import Membership, memberships
from permille.mesh.errors import InvalidArgument

SHORTEST_ID = 12
CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
NAMED_POD = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
NEAREST = 3

Members = Mapping[int, tuple[Membership, ...]]


@dataclass(frozen=True)
class Roots:
    """Where the kernel and the kubelet tell."""

    proc: Path = PROC
    cgroups: Path = cgroup_folders.MOUNT
    pod_logs: Path = pod_names.LOGS

    def tree(self) -> CgroupTree:
        return CgroupTree(self.cgroups, self.proc)


@dataclass(frozen=True)
class Group:
    """A wish: one of the four is given."""

    cgroup: str = ""
    container_id: str = ""
    pod: str = ""
    selector: str = ""

    @property
    def given(self) -> bool:
        return self._ways > 0

    def require_one(self) -> None:
        """Raises InvalidArgument (TARGET_AMBIGUOUS)."""
        if self._ways != 1:
            raise InvalidArgument(
                "a target is one of cgroup, container, pod and selector",
                reason="TARGET_AMBIGUOUS",
                help="name it in one way",
            )

    def allow_one(self) -> None:
        """Raises InvalidArgument (TARGET_AMBIGUOUS) for more than one."""
        if self.given:
            self.require_one()

    @property
    def _ways(self) -> int:
        return sum(map(bool, (self.cgroup, self.container_id, self.pod, self.selector)))


NO_GROUP = Group()


@dataclass(frozen=True)
class Resolved:
    """`found`: the cgroup's path, the container's whole id, the pod's UID; "" when there is none or `pids` is empty
    for another reason, which `why_not` says. `nearest`: what might have been meant."""

    pids: tuple[int, ...] = ()
    found: str = ""
    why_not: str = ""
    nearest: tuple[str, ...] = field(default=())


def resolve(group: Group, roots: Roots = Roots()) -> Resolved:
    """The processes that are in the group now; those that they start later are in it too.

    Raises InvalidArgument for names that cannot be: CGROUP_INVALID, CONTAINER_ID_INVALID, POD_INVALID, and
    TARGET_AMBIGUOUS for more than one kind of name.
    """
    group.require_one()
    if group.cgroup:
        return by_cgroup(group.cgroup, roots)
    if group.container_id:
        return by_container(group.container_id, roots)
    return by_pod(group.pod, roots)


def by_cgroup(text: str, roots: Roots) -> Resolved:
    wanted = cgroup_folders.named(text, roots.cgroups)
    members = memberships(roots.tree())
    pids = having(members, wanted.holds)
    if pids:
        return Resolved(pids, wanted.path)
    if cgroup_folders.exists(wanted, roots.cgroups):
        return Resolved(found=wanted.path, why_not=f"the cgroup {wanted.path} has no process now")
    paths = {member.path for of in members.values() for member in of} | cgroup_folders.all_paths(roots.cgroups)
    return Resolved(
        why_not=f"there is no cgroup {wanted.path}",
        nearest=closest(wanted.path, (path for path in paths if path != "/" and path.isprintable())),
    )


def by_container(text: str, roots: Roots) -> Resolved:
    """By the whole id or a prefix of at least 12 digits; also as Kubernetes writes it, `containerd://ID`."""
    prefix = text.rpartition("://")[2].lower()
    if not CONTAINER_ID.fullmatch(prefix):
        raise InvalidArgument(
            f"{text!r} is no container id",
            reason="CONTAINER_ID_INVALID",
            help=f"give {SHORTEST_ID} to 64 hexadecimal digits, as `docker ps` and `crictl ps` print them",
            metadata={"container_id": text},
        )
    members = memberships(roots.tree())
    containers = {one for of in members.values() for member in of for one in containers_of(member.path)}
    ids = sorted({one.id for one in containers if one.id.startswith(prefix)})
    if len(ids) == 1:
        return Resolved(having(members, lambda member: any(c.id == ids[0] for c in containers_of(member.path))), ids[0])
    if ids:
        return Resolved(why_not=f"{len(ids)} containers' ids begin with {prefix}", nearest=tuple(ids[:NEAREST]))
    return Resolved(why_not=f"no process is in a container {prefix}", nearest=likest(prefix, containers, roots))


def by_pod(text: str, roots: Roots) -> Resolved:
    """By UID, or by `namespace/name` where a kubelet keeps logs."""
    if not (UID.fullmatch(text) or NAMED_POD.fullmatch(text)):
        raise InvalidArgument(
            f"{text!r} is no pod",
            reason="POD_INVALID",
            help="write NAMESPACE/NAME, as in default/web-0, or the pod's UID",
            metadata={"pod": text},
        )
    members = memberships(roots.tree())
    running = {uid for of in members.values() for member in of for uid in pods_of(member.path)}
    named = pod_names.pods_here(roots.pod_logs)
    # A pod of a StatefulSet keeps its name with another UID; the logs of the one before may still be there.
    uids = {text} if UID.fullmatch(text) else {pod.uid for pod in named if pod.full == text}
    if here := sorted(uids & running):
        return Resolved(having(members, lambda member: bool(set(here) & set(pods_of(member.path)))), here[0])
    if uids and "/" in text:
        return Resolved(why_not=f"no process of the pod {text} is here now")
    if "/" in text and running and not named:
        why_not = f"nothing below {roots.pod_logs} says which pod {text} is: name its UID"
        return Resolved(why_not=why_not, nearest=tuple(sorted(running)[:NEAREST]))
    known = [pod.full for pod in named if pod.uid in running] if "/" in text else running
    return Resolved(why_not=f"there is no pod {text}", nearest=closest(text, known))


def having(members: Members, holds: Callable[[Membership], bool]) -> tuple[int, ...]:
    return tuple(sorted(pid for pid, of in members.items() if any(map(holds, of))))


def closest(text: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(text, sorted(names), n=NEAREST, cutoff=0.5))


def likest(prefix: str, containers: Iterable[Container], roots: Roots) -> tuple[str, ...]:
    """Short ids with their pods; those that begin alike first."""
    names = {pod.uid: pod.full for pod in pod_names.pods_here(roots.pod_logs)}
    ordered = sorted(set(containers), key=lambda one: (-alike(one.id, prefix), one.id))
    pods = [names.get(one.pod, one.pod) for one in ordered[:NEAREST]]
    return tuple(
        one.id[:SHORTEST_ID] + (f" (pod {pod})" if pod else "")
        for one, pod in zip(ordered[:NEAREST], pods, strict=True)
    )


def alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
