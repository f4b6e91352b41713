"""Which cgroups every process is in, from /proc/PID/cgroup: one line per hierarchy (cgroups(7))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Membership:
    """`hierarchy`: the v1 controllers as the kernel lists them, "" for v2; `path` from the hierarchy's root."""

    hierarchy: str
    path: str


def memberships(proc: Path = PROC) -> dict[int, tuple[Membership, ...]]:
    """By pid, of all processes that are there."""
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "cgroup").read_text()
        except OSError:
            continue
        found[int(folder.name)] = tuple(parse(text))
    return found


def parse(text: str) -> Iterator[Membership]:
    """Seen from within a cgroup namespace, what lies outside begins with `/..` (cgroup_namespaces(7))."""
    for line in text.splitlines():
        _, hierarchy, path = line.split(":", 2)
        while path.startswith("/.."):
            path = path[3:]
        yield Membership(hierarchy.removeprefix("name="), path or "/")


def is_within(path: str, folder: str) -> bool:
    """Whether a cgroup is another one or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
