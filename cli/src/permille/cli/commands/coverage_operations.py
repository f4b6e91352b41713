"""`permille coverage list`, `get`, `wait` and `cancel`: what was begun, by whomever."""

from __future__ import annotations

from typing import Annotated

import typer
from permille.api.operation.v1 import operation_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.followed_recording import progress_of, result_json, result_of, tell_result
from permille.cli.invocation import Invocation, command
from permille.cli.progress_display import ProgressDisplay
from permille.cli.rendering.coverage_text import rounds_json, rounds_text
from permille.cli.rendering.operation_text import listed_json, operation_lines, operation_table
from permille.mesh.operations import operation_error

Operation = operation_pb2.Operation
_PREFIX = "operations/"
_LARGEST_PAGE = 1000

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_Which = Annotated[str, typer.Argument(metavar="OPERATION", help="operations/ID, or the ID; `list` shows them.")]


@app.command("list")
@command
def list_operations(
    invocation: Invocation,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Only the newest so many.")] = 20,
) -> None:
    """List operations, the newest first: what is planned, recorded, stored or decoded, and what came of it.

    They are kept for a week after their end. [bold]Example[/bold]: permille coverage list --limit 5
    """
    found = in_mesh(invocation.config, lambda client: _newest(client, limit))
    if invocation.as_json:
        invocation.print_json({"operations": [listed_json(one) for one in found]})
    elif found:
        invocation.console.print(operation_table(found))
    else:
        invocation.notes.print("no operations; begin one: permille coverage start --name NAME")


@app.command()
@command
def get(invocation: Invocation, *, operation: _Which) -> None:
    """Show an operation as it is now: how far it is, or what came of it.

    [bold]Example[/bold]: permille coverage get operations/ID
    """

    async def work(client: MeshClient) -> Operation:
        request = operation_pb2.GetOperationRequest(name=_name(operation))
        return (await answer((await client.coverage()).GetOperation(request))).operation

    show_operation(invocation, in_mesh(invocation.config, work))


@app.command()
@command
def wait(
    invocation: Invocation,
    *,
    operation: _Which,
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=1, metavar="SECONDS", help="How long to wait for a mesh that does not answer."),
    ] = 120.0,
) -> None:
    """Wait for the end of an operation and show what came of it; a failed one ends with its error.

    Ctrl-C stops waiting, and the operation goes on. [bold]Example[/bold]: permille coverage wait operations/ID
    """

    async def work(client: MeshClient) -> Operation:
        request = operation_pb2.GetOperationRequest(name=_name(operation))
        begun = (await answer((await client.coverage()).GetOperation(request))).operation
        with ProgressDisplay(invocation.notes, silent=invocation.as_json) as display:
            return await progress_of(client, begun.name, display, patience_s, cancels=False).follow(begun)

    tell_done(invocation, in_mesh(invocation.config, work))


@app.command()
@command
def cancel(invocation: Invocation, *, operation: _Which) -> None:
    """Ask for the end of an operation; what was recorded is kept. One that is done stays as it is.

    [bold]Example[/bold]: permille coverage cancel operations/ID
    """

    async def work(client: MeshClient) -> Operation:
        request = operation_pb2.CancelOperationRequest(name=_name(operation))
        return (await answer((await client.coverage()).CancelOperation(request))).operation

    show_operation(invocation, in_mesh(invocation.config, work))


def tell_done(invocation: Invocation, done: Operation) -> None:
    """What a finished operation achieved, and what to type next."""
    result = result_of(done)
    if invocation.as_json:
        invocation.print_json({**result_json(done, result), **rounds_json(result)})
        return
    for part in rounds_text(result):
        invocation.console.print(part)
    tell_result(invocation, result)
    if len(result.sessions) > 1:
        invocation.console.print(f"together: permille coverage show {done.name}", markup=False)


def show_operation(invocation: Invocation, found: Operation) -> None:
    """How far an operation is, or what came of it."""
    well = found.done and operation_error(found) is None
    if invocation.as_json:
        result = result_of(found)
        came = {**result_json(found, result), **rounds_json(result)} if well else {}
        invocation.print_json({**came, "operation": listed_json(found)})
        return
    for line in operation_lines(found):
        invocation.console.print(line, markup=False)
    if well:
        tell_done(invocation, found)


async def _newest(client: MeshClient, limit: int) -> list[Operation]:
    found: list[Operation] = []
    token = ""
    while len(found) < limit:
        request = operation_pb2.ListOperationsRequest(
            page_size=min(limit - len(found), _LARGEST_PAGE), page_token=token
        )
        page = await answer((await client.coverage()).ListOperations(request))
        found += page.operations
        token = page.next_page_token
        if not token:
            break
    return found


def _name(given: str) -> str:
    return _PREFIX + given.removeprefix(_PREFIX)
