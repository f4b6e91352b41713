"""`permille delete`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.units import size
from permille.cli.session_list import ListedSession, chosen_or_stored, list_sessions
from permille.mesh.errors import Cancelled, InvalidArgument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
@command
def delete(
    invocation: Invocation,
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION...", help="As for `permille report`.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete sessions for good: the recording, its rows in all tables, and the files of both.

    Binaries stay: other sessions need them too.

    [bold]Example[/bold]: permille delete 20261121-073851-a76b329d --yes
    """
    wanted = in_mesh(invocation.config, lambda client: _chosen(client, sessions))
    if not yes:
        _confirm(invocation, wanted)
    deleted = in_mesh(invocation.config, lambda client: _delete(client, wanted))
    if invocation.as_json:
        invocation.print_json(
            [
                {"session": one.name, "deleted_objects": freed.deleted_objects, "freed_bytes": freed.freed_bytes}
                for one, freed in deleted
            ]
        )
        return
    for one, freed in deleted:
        invocation.console.print(f"deleted {one.name}, {size(freed.freed_bytes)} freed", markup=False)


async def _chosen(client: MeshClient, sessions: list[str]) -> list[ListedSession]:
    listed = await list_sessions(client)
    # Each once, however often it was named.
    return list({one.name: one for one in (chosen_or_stored(listed, session) for session in sessions)}.values())


async def _delete(
    client: MeshClient, sessions: list[ListedSession]
) -> list[tuple[ListedSession, decoder_pb2.DeleteSessionResponse]]:
    decoder = await client.decoder()
    return [
        (one, await answer(decoder.DeleteSession(decoder_pb2.DeleteSessionRequest(name=one.name)))) for one in sessions
    ]


def _confirm(invocation: Invocation, sessions: list[ListedSession]) -> None:
    for one in sessions:
        invocation.notes.print(f"{one.name}: {escaped(one.target)}, {size(one.stored_bytes)}", markup=False)
    if not sys.stdin.isatty():
        raise InvalidArgument(
            "nobody can be asked whether to delete for good: standard input is no terminal",
            reason="NOT_CONFIRMED",
            help="say so on the command line: --yes",
        )
    try:
        confirmed = typer.confirm("Delete for good?", err=True)
    except typer.Abort:
        # Ctrl-C, or the end of the input.
        confirmed = False
    if not confirmed:
        raise Cancelled("nothing was deleted", reason="NOT_CONFIRMED")
