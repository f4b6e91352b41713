"""Which cgroups every process is in, from /proc/PID/cgroup: one line per hierarchy (cgroups(7))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from permille.controller.domain.cgroup_tree import CgroupTree
from permille.controller.domain.proc_text import lines_of, text_of


@dataclass(frozen=True)
class Membership:
    """`hierarchy`: the v1 controllers as the kernel lists them, "" for v2; `path` from the hierarchy's root, as far as
    that can be told from within a cgroup namespace."""

    hierarchy: str
    path: str


def memberships(tree: CgroupTree) -> dict[int, tuple[Membership, ...]]:
    """By pid, of all processes that are there."""
    found = {}
    for folder in tree.proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = text_of(folder / "cgroup")
        except OSError:
            continue
        found[int(folder.name)] = tuple(parse(text, tree))
    return found


def parse(text: str, tree: CgroupTree) -> Iterator[Membership]:
    for line in lines_of(text):
        _, hierarchy, path = line.split(":", 2)
        yield Membership(hierarchy.removeprefix("name="), tree.name(hierarchy, path))


def is_within(path: str, folder: str) -> bool:
    """Whether a cgroup is another one or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
