"""Who joins a group while it is recorded: a process comes into a cgroup by a fork of one that is there, which the
recorder sees, or is put there, which only looking tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from permille.controller.domain.targets import cgroup_folders
from permille.controller.domain.targets.container_names import containers_of, pods_of
from permille.controller.domain.targets.process_cgroups import Membership, memberships
from permille.controller.domain.targets.resolution import Group, Members, Roots, having

LOOK_S = 0.1
# Of the time, on a machine with so many processes that a look takes long.
MOST_SHARE = 0.02
HERE = Roots()


class GroupMembers:
    """Of the group whose processes `pids` are; of no group nobody joins. `clock`: in s."""

    def __init__(
        self,
        group: Group,
        pids: Collection[int],
        roots: Roots = HERE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree = roots.tree()
        self._clock = clock
        self._known = set(pids)
        self._holds = holding(group, memberships(self._tree), pids, roots) if group.given else None
        self._next = clock()

    def newcomers(self) -> list[int]:
        """Each once, at the first look at which it is there; none when it is not yet time to look again."""
        begun = self._clock()
        if self._holds is None or begun < self._next:
            return []
        found = set(having(memberships(self._tree), self._holds))
        new = found - self._known
        # A number can come back with another process behind it.
        self._known = found
        now = self._clock()
        self._next = now + max(LOOK_S, (now - begun) / MOST_SHARE)
        return sorted(new)


def holding(group: Group, members: Members, pids: Collection[int], roots: Roots) -> Callable[[Membership], bool]:
    """Whether a cgroup is of the group. Pods are those that `pids` are in: their names may be told elsewhere."""
    if group.cgroup:
        return cgroup_folders.named(group.cgroup, roots.cgroups).holds
    paths = [member.path for pid in pids for member in members.get(pid, ())]
    if group.container_id:
        prefix = group.container_id.rpartition("://")[2].lower()
        ids = {one.id for path in paths for one in containers_of(path) if one.id.startswith(prefix)}
        return lambda member: any(one.id in ids for one in containers_of(member.path))
    # The innermost: a node may itself be in a pod.
    uids = {uids[-1] for path in paths if (uids := pods_of(path))}
    return lambda member: not uids.isdisjoint(pods_of(member.path))
