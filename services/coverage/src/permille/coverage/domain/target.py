"""Which processes a target means."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from permille.coverage.domain.group_target import by_group
from permille.coverage.domain.node import Node, Process
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound

MOST_PIDS = 64
_LARGEST_PID = 1 << 22


@dataclass(frozen=True)
class Target:
    """A wish: processes by number, or else by exact name, or those of a group; on one node, or on all for ""."""

    node: str = ""
    pids: tuple[int, ...] = ()
    process_name: str = ""
    cgroup: str = ""
    container_id: str = ""
    pod: str = ""
    selector: str = ""
    # What is to record: "" for each node's choice.
    backend: str = ""

    def __post_init__(self) -> None:
        """Raises `InvalidArgument` for a target that names nothing or cannot exist."""
        named = (self.pids, self.process_name, self.cgroup, self.container_id, self.pod, self.selector)
        ways = sum(map(bool, named))
        if not ways:
            raise InvalidArgument(
                "the target names no process",
                reason="TARGET_EMPTY",
                help="give pids or a process name (--pid or --name), or a cgroup, a container, a pod or labels",
            )
        if ways > 1:
            raise InvalidArgument(
                "the target is named in several ways",
                reason="TARGET_AMBIGUOUS",
                help="give one of pids, process name, cgroup, container, pod and label selector",
            )
        if len(self.pids) > MOST_PIDS:
            raise InvalidArgument(
                f"{len(self.pids)} pids are more than one request may name ({MOST_PIDS})",
                reason="TARGET_TOO_LARGE",
                help="name what they have in common instead: their name, cgroup, container, pod or labels",
            )
        for pid in self.pids:
            if not 0 < pid < _LARGEST_PID:
                raise InvalidArgument(
                    f"{pid} cannot be a pid",
                    reason="PID_OUT_OF_RANGE",
                    help=f"a pid is 1 to {_LARGEST_PID - 1}",
                    metadata={"pid": str(pid)},
                )

    @property
    def exact(self) -> bool:
        """Whether it means just these processes, and not as many of a name as are worth it."""
        return bool(self.pids or self.group)

    @property
    def pod_namespace(self) -> str:
        """That of a pod by `namespace/name`; "" for a UID, and where no pod is named."""
        return self.pod.rpartition("/")[0]

    @property
    def group(self) -> str:
        """What a person calls the cgroup, the container, the pod or the pods; "" when the target is none."""
        if self.cgroup:
            return f"cgroup {self.cgroup}"
        if self.container_id:
            return f"container {self.container_id}"
        if self.selector:
            return f"selector {self.selector}"
        return f"pod {self.pod}" if self.pod else ""


@dataclass(frozen=True)
class Match:
    """The processes of one node that a target means."""

    node: Node
    processes: tuple[Process, ...]


def match(target: Target, nodes: Sequence[Node]) -> list[Match]:
    """Where the target is. Several processes of one name all belong to it.

    Raises `NotFound` for a pid that does not run or a name that nobody has (with the nearest names),
    `FailedPrecondition` for a process that runs and cannot be recorded and where no node has the back end asked for,
    `InvalidArgument` when a pid could be on several nodes; for groups what `by_group` raises.
    """
    working = [node for node in nodes if not node.unavailable]
    if nodes and not working:
        raise _no_backend(target.backend, nodes[0])
    nodes = working
    if target.group:
        # A cgroup of one path may be on many nodes, as the pods of a selector are, and all are meant.
        one_only = not (target.cgroup or target.selector)
        return [Match(*found) for found in by_group(target.group, nodes, one_only=one_only)]
    if target.pids:
        return [_by_pid(target, nodes)]
    return _by_name(target.process_name, nodes)


def _by_pid(target: Target, nodes: Sequence[Node]) -> Match:
    pids = tuple(dict.fromkeys(target.pids))
    having = {pid: [n for n in nodes if any(p.pid == pid for p in (*n.recordable, *n.others))] for pid in pids}
    candidates = [node for node in nodes if any(node in found for found in having.values())]
    if len(candidates) > 1:
        raise _several_nodes(having, candidates)
    if not candidates:
        raise _no_such_pid(pids[0], nodes)
    node = candidates[0]
    recordable = {process.pid: process for process in node.recordable}
    others = {process.pid: process for process in node.others}
    for pid in pids:
        if pid in others and pid not in recordable:
            raise _not_recordable(others[pid], node)
        if pid not in recordable:
            raise _no_such_pid(pid, [node])
    return Match(node, tuple(recordable[pid] for pid in pids))


def _by_name(name: str, nodes: Sequence[Node]) -> list[Match]:
    matches = [Match(node, found) for node in nodes if (found := tuple(p for p in node.recordable if p.name == name))]
    if matches:
        return matches
    for node in nodes:
        for process in node.others:
            if process.name == name:
                raise _not_recordable(process, node)
    raise _no_such_name(name, nodes)


def _several_nodes(having: Mapping[int, Sequence[Node]], candidates: Sequence[Node]) -> InvalidArgument:
    for pid, nodes in having.items():
        if len(nodes) > 1:
            names = ", ".join(node.name for node in nodes)
            return InvalidArgument(
                f"pid {pid} exists on several nodes: {names}",
                reason="NODE_AMBIGUOUS",
                help="say which node is meant (--node)",
                metadata={"nodes": names},
            )
    where = ", ".join(f"{pid} on {nodes[0].name}" for pid, nodes in having.items() if nodes)
    return InvalidArgument(
        f"the pids run on different nodes: {where}",
        reason="NODE_AMBIGUOUS",
        help="pids of one request are of one node: make a request for each node",
        metadata={"nodes": ", ".join(node.name for node in candidates)},
    )


def _no_backend(backend: str, node: Node) -> FailedPrecondition:
    return FailedPrecondition(
        f"{backend}: not on this machine ({node.name}), because {node.unavailable}",
        reason="BACKEND_UNAVAILABLE",
        help=node.way_out,
        metadata={"backend": backend, "node": node.name},
    )


def _no_such_pid(pid: int, nodes: Sequence[Node]) -> NotFound:
    where = ", ".join(node.name for node in nodes)
    return NotFound(
        f"no process with pid {pid} is running on {where}",
        reason="NO_SUCH_PROCESS",
        help="check the number; `permille run -- CMD` starts a program ready to be recorded and prints its pid",
        metadata={"pid": str(pid), "nodes": where},
    )


def _not_recordable(process: Process, node: Node) -> FailedPrecondition:
    return FailedPrecondition(
        f"process {process.pid} ({process.name}) on {node.name} runs, but was not started ready to be recorded",
        reason="NOT_RECORDABLE",
        help="start it with `permille run -- CMD`, with `run --follow` where CMD is a script that starts it; "
        "`permille doctor` says what else this machine can record",
        metadata={"pid": str(process.pid), "name": process.name, "node": node.name},
    )


def _no_such_name(name: str, nodes: Sequence[Node]) -> NotFound:
    names = sorted({process.name for node in nodes for process in node.recordable})
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        way_out = f"did you mean {' or '.join(near)}?"
    elif names:
        way_out = f"recordable now: {', '.join(names[:20])}"
    else:
        way_out = "nothing is recordable now: start a program with `permille run -- CMD`"
    return NotFound(
        f"no recordable process is named {name!r}",
        reason="NO_SUCH_PROCESS",
        help=way_out,
        metadata={"name": name, "nearest": ", ".join(near)},
    )
