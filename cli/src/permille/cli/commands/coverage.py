"""`permille coverage`."""

from __future__ import annotations

from typing import Annotated

import typer
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.commands import coverage_operations
from permille.cli.commands.coverage_operations import show_operation, tell_done
from permille.cli.coverage_options import wishing
from permille.cli.followed_recording import begun, planned, recorded
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.coverage_text import coverage_json, coverage_text, plan_text, rounds_json
from permille.cli.rendering.more_rows import MOST_ROWS
from permille.cli.rendering.trace_lines import estimate_line, not_planned_lines, plan_json
from permille.cli.session_set import session_sets
from permille.mesh.errors import InvalidArgument

app = typer.Typer(
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    help="""What has been seen of a program, what is probably missing, and recordings that stop when that is enough.

    [bold]show[/bold] puts the sessions of a program's replicas together, [bold]plan[/bold] says who would be recorded,
    for how long, at which cost and why, [bold]start[/bold] records. [bold]list[/bold], [bold]get[/bold],
    [bold]wait[/bold] and [bold]cancel[/bold] are about operations: what a start, or another system's, has begun.
    Each prints JSON with --json.
    """,
)
app.add_typer(coverage_operations.app)


@app.command()
@command
def show(
    invocation: Invocation,
    *,
    which: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Sessions, or one operations/ID.")
    ] = None,
    name: Annotated[
        str, typer.Option("--name", "-n", metavar="NAME", help="The newest sessions of programs of this name instead.")
    ] = "",
    top: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="So many functions, and calls between them.")
    ] = 15,
    paths: Annotated[
        int,
        typer.Option(min=0, max=MOST_ROWS, metavar="N", help="So many call paths; 0: none, which takes less time."),
    ] = 15,
) -> None:
    """Show what replicas' sessions make together, and how much none of them has seen.

    Call paths are each told once, with how often they were taken and in how many sessions, under their callers.

    `unseen` is an estimate from how many functions were in one session only and in two (Chao2): at least so many exist
    and have not run in any. `seen` is the share of what another session would run that is known already.

    [bold]Example[/bold]: permille coverage show --name redis-server
    """
    if bool(which) == bool(name):
        raise InvalidArgument(
            "give either sessions or --name", reason="SESSION_SET", help="permille coverage show --name NAME"
        )

    async def work(client: MeshClient) -> coverage_pb2.GetCoverageResponse:
        of = coverage_pb2.SessionSet(target=name) if name else (await session_sets(client, which or []))[0]
        request = coverage_pb2.GetCoverageRequest(of=of, functions=top, edges=top, paths=paths)
        return await answer((await client.coverage()).GetCoverage(request, timeout=300))

    found = in_mesh(invocation.config, work)
    if invocation.as_json:
        invocation.print_json(coverage_json(found))
        return
    for part in coverage_text(found):
        invocation.console.print(part)


@app.command()
@command
@wishing
def plan(invocation: Invocation, *, wish: coverage_pb2.CoverageRequest) -> None:
    """Say who would be recorded, for how long, at which cost, and why; record nothing.

    [bold]Example[/bold]: permille coverage plan --name redis-server --rounds 10
    """

    async def work(client: MeshClient) -> coverage_pb2.Plan:
        request = coverage_pb2.PlanCoverageRequest(coverage=wish, outlook=True)
        return (await answer((await client.coverage()).PlanCoverage(request))).plan

    found = in_mesh(invocation.config, work)
    if invocation.as_json:
        invocation.print_json({"plan": plan_json(found), **rounds_json(found)})
        return
    for part in plan_text(found):
        invocation.console.print(part)


@app.command()
@command
@wishing
def start(
    invocation: Invocation,
    *,
    wish: coverage_pb2.CoverageRequest,
    request_id: Annotated[
        str, typer.Option(metavar="ID", help="Makes a repetition find the same operation instead of starting another.")
    ] = "",
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=1, metavar="SECONDS", help="How long to wait for a mesh that does not answer."),
    ] = 120.0,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Only begin, and print the operation: `permille coverage wait` follows it."),
    ] = False,
) -> None:
    """Record by the plan, decode, and with --rounds go on while another replica shows enough that is new.

    [bold]Example[/bold]: permille coverage start --name redis-server --rounds 10
    """

    async def work(client: MeshClient) -> operation_pb2.Operation:
        expected = await planned(client, wish, request_id=request_id)
        if expected is not None and not invocation.as_json:
            for line in (estimate_line(expected), *not_planned_lines(expected)):
                invocation.notes.print(line, markup=False)
        if no_wait:
            return await begun(client, wish, request_id)
        return await recorded(invocation, client, wish, expected, request_id=request_id, patience_s=patience_s)

    (show_operation if no_wait else tell_done)(invocation, in_mesh(invocation.config, work))
