"""`permille run`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from permille.api.controller.v1 import controller_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.launching.executable import launch
from permille.cli.launching.named_emulator import named_emulator
from permille.cli.rendering.terminal_text import escaped
from permille.mesh.errors import FailedPrecondition, NotFound, PermissionDenied

app = typer.Typer(rich_markup_mode="rich", add_completion=False)
# Without these nothing can be started ready to be recorded.
_NEEDED = ("qemu", "vpt")


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@command
def run(
    invocation: Invocation,
    *,
    program: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", help="The program and its arguments.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="What the program executes is ready to be recorded, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the pid and the next command.")] = False,
) -> None:
    """Start a program ready to be recorded.

    The program runs on QEMU's user emulator with a plugin that is a processor with Processor Trace: slower, and
    otherwise unchanged. Until a trace begins nothing is recorded. This process becomes the program: its pid, its
    output, its signals and its exit code are the program's own.

    A script is started through the interpreter in its first line; the program that it ends in (`exec server`), and all
    others that it starts, can be recorded with `--follow` only. Needs the controller of this machine (`permille up`).

    [bold]Examples[/bold]

      permille run -- redis-server --port 7000

      permille run -q -- python3 server.py &

      permille run --follow -- ./start-server.sh
    """
    wanted = launch(program, os.environ.get("PATH", os.defpath), os.geteuid())
    node = in_mesh(invocation.config, _node)
    for capability in node.capabilities:
        if capability.name in _NEEDED and not capability.available:
            raise FailedPrecondition(
                f"programs cannot be started ready to be recorded: {capability.detail}",
                reason="RECORDER_MISSING",
                help=capability.fix or "`permille doctor` shows what is missing",
                metadata={"capability": capability.name},
            )
    command_line = [*(node.following_launch_prefix if follow else node.launch_prefix), *wanted.arguments]
    if not quiet:
        sys.stderr.write(
            f"permille: {escaped(shlex.join(program)[:200])} starts as pid {os.getpid()}; "
            f"{invocation.hint('trace', f'--pid {os.getpid()} --for 500ms')}\n"
        )
        sys.stderr.flush()
    _become(command_line, dict(node.launch_environment), wanted.program, invocation.config.state_dir / "programs")


async def _node(client: MeshClient) -> controller_pb2.Node:
    controller = await client.controller()
    return (await answer(controller.GetNode(controller_pb2.GetNodeRequest()))).node


def _become(command_line: list[str], environment: dict[str, str], program: Path, names: Path) -> None:
    emulator = shutil.which(command_line[0])
    if emulator is None:
        raise NotFound(
            f"{command_line[0]} is not installed",
            reason="RECORDER_MISSING",
            help="sudo apt-get install qemu-user",
        )
    try:
        named = named_emulator(Path(emulator), program, names)
        os.execve(named, command_line, {**os.environ, **environment})  # noqa: S606 - the purpose of this command
    except OSError as error:
        raise PermissionDenied(
            f"{emulator} cannot be started: {error.strerror}",
            reason="RECORDER_UNUSABLE",
            help="`permille doctor` shows what is missing",
        ) from None
