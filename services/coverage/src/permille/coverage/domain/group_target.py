"""Which processes a cgroup, a container or a pod means: the nodes have looked, here their answers become one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from permille.coverage.domain.node import Node, Process
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound

MOST_NAMED = 5


def by_group(asked: str, nodes: Sequence[Node], *, one_only: bool) -> Iterator[tuple[Node, tuple[Process, ...]]]:
    """The recordable processes of the group, by node; `asked` is what a person calls it: `container 0123456789ab`.

    Raises `NotFound` (TARGET_NOT_FOUND) with what might have been meant, `InvalidArgument` (TARGET_AMBIGUOUS) when
    `one_only` and nodes have different ones, `FailedPrecondition` (NOT_RECORDABLE) when no process can be recorded.
    """
    here = [node for node in nodes if node.group.pids]
    if not here:
        raise _not_found(asked, nodes)
    names = sorted({node.group.found for node in here})
    if one_only and len(names) > 1:
        raise InvalidArgument(
            f"{asked} could be {' or '.join(names[:MOST_NAMED])}",
            reason="TARGET_AMBIGUOUS",
            help="give more of it, or say which node is meant (--node)",
            metadata={"nearest": ", ".join(names[:MOST_NAMED])},
        )
    recordable = [
        (node, found)
        for node in here
        if (found := tuple(process for process in node.recordable if process.pid in node.group.pids))
    ]
    if not recordable:
        raise _not_recordable(asked, here)
    yield from recordable


def _not_found(asked: str, nodes: Sequence[Node]) -> NotFound:
    reasons = sorted({node.group.why_not for node in nodes if node.group.why_not})
    near = list(dict.fromkeys(itertools.chain.from_iterable(node.group.nearest for node in nodes)))[:MOST_NAMED]
    where = ", ".join(node.name for node in nodes[:MOST_NAMED])
    why = "; ".join(reasons[:MOST_NAMED]) or "it has no process that lives"
    # A reason that names it says all that there is to say.
    named = bool(reasons) and all(asked.partition(" ")[2] in reason for reason in reasons)
    return NotFound(
        f"on {where} {why}" if named else f"{asked} is not on {where}: {why}",
        reason="TARGET_NOT_FOUND",
        help=f"did you mean {' or '.join(near)}?" if near else "check the name, and the node",
        metadata={"target": asked, "nearest": ", ".join(near)},
    )


def _not_recordable(asked: str, nodes: Sequence[Node]) -> FailedPrecondition:
    others = [process for node in nodes for process in node.others if process.pid in node.group.pids]
    listed = ", ".join(f"{process.pid} ({process.name})" for process in others[:MOST_NAMED])
    return FailedPrecondition(
        f"{asked} has no process that was started ready to be recorded" + (f", only {listed}" if listed else ""),
        reason="NOT_RECORDABLE",
        help="start it with `permille run -- CMD`; `permille doctor` says what else this machine can record",
        metadata={"target": asked},
    )
