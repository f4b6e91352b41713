"""`permille up`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Annotated

import typer
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.up_lines import event_json, event_line
from permille.cli.supervision.events import Event
from permille.cli.supervision.state_lock import state_lock
from permille.cli.supervision.supervisor import Supervisor
from permille.mesh import logs
from permille.mesh.errors import PermilleError

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
@command
def up(
    invocation: Invocation,
    *,
    ready_timeout_s: Annotated[
        float, typer.Option("--ready-timeout", min=1, metavar="SECONDS", help="How long the start may take.")
    ] = 120.0,
) -> None:
    """Start everything on this machine, and keep it running.

    A private etcd, then allocator, controller, decoder and coverage, each a process of its own. It says `ready` once
    every service is found and healthy. A process that dies is started again.

    Ctrl-C or SIGTERM drains: running calls end, unfinished work is kept and goes on at the next start. A second Ctrl-C
    kills. A second `permille up` on the same state folder is refused.

    Logs are in STATE_DIR/logs, etcd's in STATE_DIR/etcd. With --etcd, or PERMILLE_ETCD, no private etcd is started.

    [bold]Example[/bold]: permille up --state-dir /tmp/permille
    """
    config = invocation.config
    logs.configure("up", config.node, level="error", style="console")
    flags = ["--state-dir", str(config.state_dir)]
    if invocation.config_file is not None:
        flags += ["--config", str(invocation.config_file)]
    if invocation.etcd is not None:
        flags += ["--etcd", invocation.etcd]

    hint = invocation.hint("run", "-- CMD")

    def tell(event: Event) -> None:
        text = json.dumps(event_json(event)) if invocation.as_json else event_line(event, hint)
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except (BrokenPipeError, PermilleError):
            # Nobody listens any more, or the disk is full: the services matter, not the words.
            sys.stdout = sys.stderr

    async def run() -> None:
        await Supervisor(config, flags, tell).run(ready_timeout_s=ready_timeout_s)

    # Somebody waits at this machine; a controller by itself spares the programs of its node instead.
    os.environ.setdefault("PERMILLE_CONTROLLER_CPU_SHARE", "1")
    with state_lock(config.state_dir):
        asyncio.run(run())
