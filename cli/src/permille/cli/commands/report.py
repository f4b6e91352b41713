"""`permille report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from permille.cli.client import MeshClient, in_mesh
from permille.cli.html_page import PageParts, read_page_parts, write_page
from permille.cli.invocation import Invocation, command
from permille.cli.progress_display import ProgressDisplay
from permille.cli.rendering.more_rows import MOST_CALLS
from permille.cli.rendering.report import Order, Report, report_json
from permille.cli.rendering.report_text import report_text
from permille.cli.rendering.terminal_text import escaped
from permille.cli.report_data import decode, read_report
from permille.cli.session_list import LATEST, chosen, chosen_or_stored, list_sessions
from permille.mesh.errors import InvalidArgument

_CALLS_OF_A_PAGE = 200_000

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
@command
def report(
    invocation: Invocation,
    *,
    session: Annotated[
        str, typer.Argument(metavar="[SESSION]", help="A session's name, id, beginning of an id, or `latest`.")
    ] = LATEST,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="So many functions; 0: all.")] = 15,
    sort: Annotated[
        Order | None,
        typer.Option(help="Only one table, sorted by this; with --html at first. Default: by self and by total."),
    ] = None,
    inlined: Annotated[
        bool,
        typer.Option(
            "--inlined", help="Show below each function what was inlined into it and how much of it that was."
        ),
    ] = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="Decode the session again first: with binaries and debug files that came later."),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page instead: tables, flame graph, time line, in one file without network. `-` is standard"
            " output.",
            readable=False,
        ),
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_CALLS,
            metavar="N",
            help=f"With --html: keep the N longest calls; 0: all. Default: {_CALLS_OF_A_PAGE:,}.",
        ),
    ] = None,
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=1, metavar="SECONDS", help="How long to wait for a mesh that does not answer."),
    ] = 120.0,
) -> None:
    """Show what a session's program did: functions by instructions and time, calls, losses.

    `self` is a function alone, `total` includes what it calls. Each loss comes with the setting that makes it less.
    A session that is stored and not decoded yet is decoded first. With --again the whole name of one that is not listed
    is looked for in the store.

    [bold]Examples[/bold]

      permille report

      permille report latest --sort total-time --top 40

      permille report latest --html report.html

      permille report latest --again
    """

    _refuse_in_vain(html=html, max_calls=max_calls, as_json=invocation.as_json)

    async def work(client: MeshClient) -> tuple[Report, PageParts | None]:
        listed = await list_sessions(client)
        wanted = chosen_or_stored(listed, session) if again else chosen(listed, session)
        if again or wanted.state != "DECODED":
            with ProgressDisplay(invocation.notes, silent=invocation.as_json) as display:
                await decode(client, wanted, display, patience_s=patience_s)
            wanted = chosen(await list_sessions(client), wanted.session_id)
        found = await read_report(client, wanted, inlined=inlined)
        kept = _CALLS_OF_A_PAGE if max_calls is None else max_calls
        return found, await read_page_parts(client, found, kept) if html else None

    found, parts = in_mesh(invocation.config, work)
    if html is not None and parts is not None:
        file = None if str(html) == "-" else html
        size_bytes = write_page(file, found, parts, sort or Order.SELF)
        if file is not None and invocation.as_json:
            invocation.print_json(
                {
                    "session": found.session.name,
                    "file": str(file),
                    "size_bytes": size_bytes,
                    "omitted_calls": parts.omitted_calls,
                    "deeper_calls": parts.deeper_calls,
                }
            )
            return
        if file is not None:
            told = f"wrote {escaped(str(file))}; it opens in any browser, without network"
            invocation.console.print(told, markup=False)
        for note in parts.notes:
            invocation.notes.print(note.text + (f": {note.way_out}" if note.way_out else ""))
        return
    if invocation.as_json:
        invocation.print_json(report_json(found, sort or Order.SELF, top))
        return
    for part in report_text(found, [sort] if sort else [Order.SELF, Order.TOTAL], top):
        invocation.console.print(part)
    invocation.notes.print(invocation.hint("report", f"{found.session.session_id} --html report.html"), markup=False)


def _refuse_in_vain(*, html: Path | None, max_calls: int | None, as_json: bool) -> None:
    if html is None and max_calls is not None:
        raise InvalidArgument(
            "--max-calls says nothing without --html",
            reason="REPORT_OPTIONS",
            help="add --html FILE: only the page has single calls",
        )
    if as_json and str(html) == "-":
        raise InvalidArgument(
            "--html - and --json both write standard output",
            reason="REPORT_OPTIONS",
            help="leave one out, or write the page to a file: --html FILE",
        )
