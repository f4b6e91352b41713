"""`permille support-bundle`."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from permille.cli.diagnosis.support_bundle import SupportBundle
from permille.cli.invocation import Invocation, command
from permille.cli.output_file import write_file
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.units import size

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command("support-bundle")
@command
def support_bundle(
    invocation: Invocation,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The archive. Default: a name with the time.", readable=False
        ),
    ] = None,
) -> None:
    """Collect what helps to find out what went wrong: one tar.gz.

    In it: the logs, what `permille doctor` says, versions, settings without secrets, sessions, operations, metrics.
    No recording and no decoded data. Works also when nothing runs.
    """
    bundle = SupportBundle(invocation.config, invocation.config_file, os.environ)
    content = asyncio.run(bundle.archive())
    file = output or Path(f"permille-support-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")
    write_file(file, [content])
    if invocation.as_json:
        invocation.print_json({"file": str(file), "size_bytes": len(content), "files": bundle.names})
        return
    invocation.console.print(
        f"wrote {escaped(str(file))} ({size(len(content))}): {', '.join(bundle.names)}", markup=False
    )
