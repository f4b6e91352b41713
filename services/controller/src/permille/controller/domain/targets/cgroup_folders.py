"""A cgroup as a person names it, and the cgroups that there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain.targets.process_cgroups import Membership, is_within
from permille.mesh.errors import InvalidArgument

MOUNT = Path("/sys/fs/cgroup")
# Enough to name neighbours; a machine with more has them in patterns.
MOST = 5000


@dataclass(frozen=True)
class NamedCgroup:
    """`hierarchy`: None when the name does not say which of several, so that any of them counts."""

    hierarchy: str | None
    path: str

    def holds(self, member: Membership) -> bool:
        mine = self.hierarchy is None or self.hierarchy == member.hierarchy
        return mine and is_within(member.path, self.path)


def named(text: str, mount: Path = MOUNT) -> NamedCgroup:
    """`/a/b`, or the folder as it is mounted: `/sys/fs/cgroup/a/b`, with cgroup v1 `/sys/fs/cgroup/cpu/a/b`.

    Raises InvalidArgument (CGROUP_INVALID) for the root, which holds the whole machine, and for a path with `..`.
    """
    parts = [part for part in text.split("/") if part not in ("", ".")]
    hierarchy: str | None = None
    prefix = list(mount.parts[1:])
    if parts[: len(prefix)] == prefix:
        parts = parts[len(prefix) :]
        if separate(mount):
            hierarchy = "" if parts[:1] == ["unified"] else next(iter(parts), None)
            parts = parts[1:]
    if not parts or ".." in parts:
        raise InvalidArgument(
            f"the cgroup {text!r} " + ("holds every process of the machine" if not parts else "contains '..'"),
            reason="CGROUP_INVALID",
            help="name a cgroup below the root, as in /proc/PID/cgroup: /system.slice/nginx.service",
            metadata={"cgroup": text},
        )
    return NamedCgroup(hierarchy, "/" + "/".join(parts))


def exists(cgroup: NamedCgroup, mount: Path = MOUNT) -> bool:
    """Also one that has no process."""
    roots = [root for name, root in hierarchies(mount) if cgroup.hierarchy in (None, name)]
    return any((root / cgroup.path.lstrip("/")).is_dir() for root in roots)


def all_paths(mount: Path = MOUNT) -> set[str]:
    """From the roots of their hierarchies."""
    found: set[str] = set()
    for _, root in hierarchies(mount):
        for folder, _, _ in os.walk(root):
            if len(found) >= MOST:
                return found
            path = "/" + str(Path(folder).relative_to(root))
            if path != "/.":
                found.add(path)
    return found


def hierarchies(mount: Path) -> Iterator[tuple[str, Path]]:
    if not separate(mount):
        yield "", mount
        return
    for folder in sorted(mount.iterdir()) if mount.is_dir() else []:
        # The names of single controllers are links to the hierarchy of several.
        if folder.is_dir() and not folder.is_symlink():
            yield "" if folder.name == "unified" else folder.name, folder


def separate(mount: Path) -> bool:
    """Whether there is a folder for each hierarchy: cgroup v1, or v1 with v2 beside it."""
    return not (mount / "cgroup.controllers").exists()
