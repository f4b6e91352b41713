"""What the inventory says: nodes, and the processes on them that can be recorded."""

from __future__ import annotations

from dataclasses import dataclass

# By which processes record themselves, those that were started so.
OWN_RECORDER = "vpt"


@dataclass(frozen=True)
class Process:
    """A process of a node; `session` is the one recording it now, if any; `version`: its binary's, as far as known."""

    pid: int
    name: str
    session: str = ""
    threads: int = 1
    version: str = ""
    # By which it would be recorded.
    backend: str = OWN_RECORDER
    # Of its executable; None: unknown.
    binary_bytes: int | None = None

    @property
    def measured_as(self) -> tuple[str, str]:
        """By which its rates are known: back ends write differently much of the same program."""
        return self.backend, self.name


@dataclass(frozen=True)
class GroupOnNode:
    """What a cgroup, a container or a pod is on one node: its processes, what it is called in full, or why not."""

    pids: frozenset[int] = frozenset()
    found: str = ""
    why_not: str = ""
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A node: what it can record now, and what was asked for, is alive and cannot be recorded. `cores` 0: unknown."""

    name: str
    recordable: tuple[Process, ...] = ()
    others: tuple[Process, ...] = ()
    # Sessions that record there now, of whichever processes.
    recording: tuple[str, ...] = ()
    trace_budget_bytes: int = 0
    cores: int = 0
    zone: str = ""
    group: GroupOnNode = GroupOnNode()
    # Why the back end that is asked for cannot record there, and the way out; "" where it can.
    unavailable: str = ""
    way_out: str = ""


@dataclass(frozen=True)
class Listing:
    """What an inventory knows of a target: nodes, and the names of those that did not answer."""

    nodes: tuple[Node, ...]
    unreachable: tuple[str, ...] = ()
