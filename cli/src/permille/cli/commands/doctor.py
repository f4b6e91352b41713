"""`permille doctor`."""

from __future__ import annotations

import asyncio

import typer
from permille.cli import exit_codes
from permille.cli.diagnosis.diagnosis import diagnose, diagnosis_json
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.doctor_text import doctor_text

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
@command
def doctor(invocation: Invocation) -> None:
    """Say what this machine can record with, and for each missing thing the command that fixes it.

    Also: which services run and are well, and which processes can be recorded now. Works without a running mesh.

    Exit code 4 when something is missing without which nothing can be recorded.
    """
    found = asyncio.run(diagnose(invocation.config))
    if invocation.as_json:
        invocation.print_json(diagnosis_json(found))
    else:
        for part in doctor_text(found):
            invocation.console.print(part)
    if not found.can_record:
        raise typer.Exit(exit_codes.PRECONDITION)
