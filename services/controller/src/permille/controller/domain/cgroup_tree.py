"""Where the cgroups that /proc tells of lie in the tree that is mounted.

/proc/PID/cgroup begins at the root of the reader's cgroup namespace, in a container mostly its own cgroup: what is
beside or above it is `/../..` and a way down (cgroup_namespaces(7)). Where the node's tree is mounted, its root too is
`/../..` in /proc/self/mountinfo, once for each level between; what those are called is told nowhere, so this process
looks for itself in the tree.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from permille.controller.domain import proc_text
from permille.controller.domain.proc_text import lines_of

MOUNT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
# Of /proc/self/mountinfo (proc_pid_mountinfo(5)).
_ROOT, _POINT = 3, 4


class Way(NamedTuple):
    """From the root of the namespace: so many levels up, and then down."""

    up: int
    down: tuple[str, ...]


HERE = Way(0, ())


class CgroupTree:
    """The hierarchies below `mount` as this process sees them."""

    def __init__(self, mount: Path = MOUNT, proc: Path = PROC) -> None:
        self.mount = mount
        self.proc = proc
        self._roots = mounted_roots(proc)
        self._own = own_ways(proc)
        self._seen: dict[str, tuple[Way, tuple[str, ...]]] = {}

    def place(self, controllers: str, path: str) -> str | None:
        """A path of /proc/PID/cgroup, from the mounted root; None where it is not in what is mounted."""
        way, (root, above) = way_of(path), self._mounted(controllers)
        if not 0 <= root.up - way.up <= len(above):
            return None
        down = (*above[: root.up - way.up], *way.down)
        if down[: len(root.down)] != root.down:
            return None
        return "/" + "/".join(down[len(root.down) :])

    def name(self, controllers: str, path: str) -> str:
        """A path of /proc/PID/cgroup, from the root of the machine's hierarchy as far as anything here tells it."""
        root, _ = self._mounted(controllers)
        # As it is without a namespace: of all processes, ten times a second.
        if root == HERE and not path.startswith("/.."):
            return path
        if root.down or (placed := self.place(controllers, path)) is None:
            return "/" + "/".join(way_of(path).down)
        return placed

    def _mounted(self, controllers: str) -> tuple[Way, tuple[str, ...]]:
        """The root of what is mounted, and how the namespace's is called from there as far as that can be known."""
        if controllers not in self._seen:
            folder = hierarchy(self.mount, controllers)
            root, own = self._roots.get(str(folder.resolve()), HERE), self._own.get(controllers, HERE)
            within = root.up > 0 and not root.down and not own.up
            found = own_cgroup(folder, root.up + len(own.down), os.getpid()) if within else ()
            self._seen[controllers] = root, found[: root.up]
        return self._seen[controllers]


def hierarchy(mount: Path, controllers: str) -> Path:
    """v1 mounts every set of controllers in a folder of its name; v2 is the mount itself, or `unified` beside v1."""
    if controllers:
        name = controllers.removeprefix("name=")
        return next((mount / part for part in (name, *name.split(",")) if (mount / part).is_dir()), mount / name)
    return mount / "unified" if (mount / "unified").is_dir() else mount


def way_of(path: str) -> Way:
    parts = [part for part in path.split("/") if part]
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return Way(up, tuple(parts[up:]))


def mounted_roots(proc: Path) -> dict[str, Way]:
    """By mount point."""
    roots = {}
    for line in lines_of(text_of(proc / "self" / "mountinfo")):
        mounted, _, kind = line.partition(" - ")
        if kind.startswith("cgroup"):
            fields = mounted.split(" ")
            roots[fields[_POINT]] = way_of(fields[_ROOT])
    return roots


def own_ways(proc: Path) -> dict[str, Way]:
    """This process's, by hierarchy."""
    lines = (line.split(":", 2) for line in lines_of(text_of(proc / "self" / "cgroup")))
    return {controllers: way_of(path) for _, controllers, path in lines}


@cache
def own_cgroup(root: Path, depth: int, pid: int) -> tuple[str, ...]:
    """The cgroup so many levels below a mounted root that has a process, as it was when first asked; () if none has."""
    for file in root.glob("/".join((*["*"] * depth, "cgroup.procs"))):
        if str(pid) in text_of(file).split():
            return file.parent.relative_to(root).parts
    return ()


def text_of(file: Path) -> str:
    """Nothing where it cannot be read."""
    try:
        return proc_text.text_of(file)
    except OSError:
        return ""
