"""`permille sessions`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from permille.cli.client import in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.session_table import session_table
from permille.cli.session_list import list_sessions

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
@command
def sessions(
    invocation: Invocation,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Only the newest so many; 0: all.")] = 50,
    target: Annotated[str, typer.Option(metavar="NAME", help="Only of programs of this name.")] = "",
) -> None:
    """List the recordings, the newest first.

    A session is preparing, recording, storing, stored (not decoded yet), decoded, or failed. One that was recorded with
    --keep, or whose TracePolicy says how long, is kept until the time shown at least: then it is deleted by itself.

    [bold]Example[/bold]: permille sessions --target redis-server
    """
    listed = in_mesh(invocation.config, list_sessions)
    wanted = [one for one in listed.sessions if target in ("", one.target)]
    shown = wanted[:limit] if limit else wanted
    if invocation.as_json:
        invocation.print_json(
            {
                "sessions": [
                    {**asdict(one), "session_id": one.session_id, "kept_until_ns": one.kept_until_ns} for one in shown
                ],
                "omitted": len(wanted) - len(shown),
                "incomplete": [gap.message for gap in listed.gaps],
            }
        )
        return
    if shown:
        invocation.console.print(session_table(shown))
    elif listed.sessions:
        invocation.notes.print(f"no sessions of {target}; without --target all are listed", markup=False)
    else:
        invocation.notes.print("no sessions; record one: permille trace --pid PID --for 500ms")
    for one in shown:
        if one.error_message:
            invocation.notes.print(f"{one.session_id}: {one.error_message}\n  {one.error_help}".rstrip(), markup=False)
    if len(wanted) > len(shown):
        invocation.notes.print(f"{len(wanted) - len(shown)} older ones are not shown: --limit 0 shows all")
    for gap in listed.gaps:
        invocation.notes.print(f"incomplete: {gap.message}\n  {gap.help}", markup=False)
