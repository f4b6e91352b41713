"""Whom a command means: options of every command that plans or starts a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.errors import InvalidArgument

_GROUPS = "Instead of --pid or --name"

# Linux, PID_MAX_LIMIT on 64 bits: pids are below it.
_LARGEST_PID = (1 << 22) - 1

Pids = Annotated[
    list[int] | None,
    typer.Option("--pid", "-p", metavar="PID", help="A process; may be repeated."),
]
Name = Annotated[
    str, typer.Option("--name", "-n", metavar="NAME", help="All processes of this exact name, instead of --pid.")
]
Cgroup = Annotated[
    str,
    typer.Option(metavar="PATH", help="All processes of this cgroup, as in /proc/PID/cgroup.", rich_help_panel=_GROUPS),
]
Container = Annotated[
    str,
    typer.Option(
        metavar="ID", help="All processes of this container: 12 digits of its id, or all.", rich_help_panel=_GROUPS
    ),
]
Pod = Annotated[
    str,
    typer.Option(metavar="NAMESPACE/NAME", help="All processes of this pod; or its UID.", rich_help_panel=_GROUPS),
]
Selector = Annotated[
    str,
    typer.Option(
        "--selector",
        "-l",
        metavar="LABELS",
        help="All processes of the pods with these labels: app=web,tier!=front.",
        rich_help_panel=_GROUPS,
    ),
]
NodeName = Annotated[str, typer.Option(metavar="NODE", help="Only on this node. Default: wherever the target is.")]

Keep = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="So long after its operation's end the recording is deleted: 12h, 7d. Default: the mesh's setting.",
    ),
]


def target_of(
    *,
    pid: Sequence[int] | None,
    name: str,
    cgroup: str,
    container: str,
    pod: str,
    selector: str,
    node: str,
    example: str,
) -> coverage_pb2.Target:
    """The target as the API has it.

    Raises `InvalidArgument`, with an example, unless it is named in one way, and for a number that is no pid.
    """
    ways = {
        "--pid": pid,
        "--name": name,
        "--cgroup": cgroup,
        "--container": container,
        "--pod": pod,
        "--selector": selector,
    }
    given = [way for way, value in ways.items() if value]
    if len(given) != 1:
        raise InvalidArgument(
            f"{' and '.join(given)} exclude each other" if given else f"give one of {', '.join(ways)}",
            reason="TARGET",
            help=f"{example}; `permille doctor` lists what can be recorded now",
        )
    for one in pid or ():
        if not 0 < one <= _LARGEST_PID:
            raise InvalidArgument(
                f"{one} cannot be a pid",
                reason="PID_OUT_OF_RANGE",
                help=f"a pid is 1 to {_LARGEST_PID}; `permille doctor` lists what can be recorded now",
                metadata={"pid": str(one)},
            )
    return coverage_pb2.Target(
        node=f"nodes/{node.removeprefix('nodes/')}" if node else "",
        pids=pid or (),
        process_name=name,
        cgroup=cgroup,
        container_id=container,
        pod=pod,
        selector=selector,
    )
