"""The cores and the processor time that a process's cgroups leave it, for cgroup v1 and v2 (cgroups(7))."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain.cgroup_tree import CgroupTree, hierarchy
from permille.controller.domain.node_use import cpu_list
from permille.controller.domain.proc_text import lines_of, text_of


@dataclass(frozen=True)
class CpuLimits:
    """`cpuset`: None where no controller says; `quota`: cores' worth of time, infinite without one.

    `quota_of`: the cgroup whose quota that is, which all below it have together; None without one. `levels`: the cgroup
    whose weight holds, and those above it; none where no controller says.
    """

    cpuset: frozenset[int] | None
    quota: float
    quota_of: Path | None = None
    levels: tuple[Path, ...] = ()


def limits(pid: int, tree: CgroupTree) -> CpuLimits:
    """What holds for a process: its own cpuset and cgroup, the tightest quota of its cgroup and all above it.

    Nothing where its cgroup is not in what is mounted. Raises ProcessLookupError when there is no such process.
    """
    try:
        lines = lines_of(text_of(tree.proc / str(pid) / "cgroup"))
    except OSError:
        raise ProcessLookupError(f"no process {pid}") from None
    cpuset: frozenset[int] | None = None
    quota, owner = math.inf, None
    weighed: tuple[Path, ...] = ()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if (place := tree.place(controllers, path)) is None:
            continue
        levels = list(upwards(hierarchy(tree.mount, controllers), place))
        if not controllers or "cpuset" in controllers.split(","):
            texts = (
                text for level in levels for text in first_text(level, "cpuset.cpus.effective", "cpuset.effective_cpus")
            )
            cpuset = next((cpu_list.parse(text) for text in texts), cpuset)
        if not controllers or "cpu" in controllers.split(","):
            for level in levels:
                if (found := quota_at(level)) < quota:
                    quota, owner = found, level
            weighed = tuple(levels) if weight_at(levels[0]) is not None else weighed
    return CpuLimits(cpuset, quota, owner, weighed)


def relative_weight(levels: Sequence[Path]) -> float:
    """Of a cgroup against those beside it, or beside one above it: the least of all levels, since nobody knows with
    whom it will compete for a core. The weights themselves say nothing: a small one among as small ones is none.
    """
    ratios = []
    for folder in levels[:-1]:
        own, beside = weight_at(folder), [found for one in siblings(folder) if (found := weight_at(one)) is not None]
        if own is not None and beside:
            ratios.append(own * len(beside) / math.fsum(beside))
    return min(ratios, default=1.0)


def siblings(folder: Path) -> Iterator[Path]:
    return (one for one in folder.parent.iterdir() if one != folder and one.is_dir())


def upwards(root: Path, path: str) -> Iterator[Path]:
    """The cgroup's folder and those above it; the root's alone where the path leads nowhere."""
    folder = root / path.lstrip("/")
    if not folder.is_dir():
        folder = root
    yield folder
    while folder != root:
        folder = folder.parent
        yield folder


def quota_at(folder: Path) -> float:
    for text in first_text(folder, "cpu.max"):
        limit, period = text.split()
        return math.inf if limit == "max" else int(limit) / int(period)
    for text in first_text(folder, "cpu.cfs_quota_us"):
        period_us = next(first_text(folder, "cpu.cfs_period_us"), "100000")
        return math.inf if int(text) <= 0 else int(text) / int(period_us)
    return math.inf


def weight_at(folder: Path) -> int | None:
    return next((int(text) for text in first_text(folder, "cpu.weight", "cpu.shares")), None)


def first_text(folder: Path, *names: str) -> Iterator[str]:
    """The first of the files that is there and says something."""
    for name in names:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text:
            yield text
            return
