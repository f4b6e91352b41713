"""`permille diff`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from permille.api.coverage.v1 import coverage_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.diff_text import diff_json, diff_text
from permille.cli.rendering.more_rows import MOST_ROWS
from permille.cli.session_set import session_sets

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Measure(StrEnum):
    """What a function's share is a share of."""

    INSTRUCTIONS = "instructions"
    CALLS = "calls"


_MEASURES = {
    Measure.INSTRUCTIONS: coverage_pb2.DiffCoverageRequest.MEASURE_INSTRUCTIONS,
    Measure.CALLS: coverage_pb2.DiffCoverageRequest.MEASURE_CALLS,
}


@app.command()
@command
def diff(
    invocation: Invocation,
    *,
    a: Annotated[str, typer.Argument(metavar="A", help="A session, several with commas between, or operations/ID.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What it is held against.")],
    by: Annotated[Measure, typer.Option(help="Functions by their share of instructions, or of calls.")] = (
        Measure.INSTRUCTIONS
    ),
    top: Annotated[int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="So many functions and calls.")] = 15,
    paths: Annotated[
        int,
        typer.Option(min=0, max=MOST_ROWS, metavar="N", help="So many call paths; 0: none, which takes less time."),
    ] = 15,
) -> None:
    """Show what two recordings did differently, the most telling first.

    What only one of them did comes first, unless it may be chance: a path that only the slow replica took is often the
    answer. Then come shares that differ, by the log-likelihood ratio (G) of the share in A and in B. Functions are
    compared by name, so that two builds can be; G ranks, it is no probability.

    [bold]Examples[/bold]

      permille diff 20261121-230200-c3f6b745 latest

      permille diff operations/A operations/B --by calls --top 40
    """

    async def work(client: MeshClient) -> coverage_pb2.DiffCoverageResponse:
        one, other = await session_sets(client, a.split(","), b.split(","))
        request = coverage_pb2.DiffCoverageRequest(a=one, b=other, measure=_MEASURES[by], limit=top, paths=paths)
        return await answer((await client.coverage()).DiffCoverage(request, timeout=300))

    found = in_mesh(invocation.config, work)
    if invocation.as_json:
        invocation.print_json(diff_json(found))
        return
    for part in diff_text(found, by.value):
        invocation.console.print(part)
