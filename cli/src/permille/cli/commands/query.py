"""`permille query`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from permille.cli import tables
from permille.cli.client import in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.answer_json import answer_json
from permille.cli.rendering.answer_table import print_answer

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

# In one answer, as the API has it.
_MOST_ROWS = 10_000_000


@app.command()
@command
def query(
    invocation: Invocation,
    *,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT; `-` reads it from standard input.")],
    max_rows: Annotated[
        int, typer.Option(min=1, max=_MOST_ROWS, metavar="ROWS", help="At most so many rows.")
    ] = 10_000,
) -> None:
    """Ask the tables with SQL (DuckDB's dialect), reading only.

    The tables are sessions, segments, functions, calls, edges, accesses, inlined and losses: `permille query "DESCRIBE
    calls"` shows the columns of one. Times are unix nanoseconds. Files and settings are out of reach; memory and time
    are limited.

    [bold]Example[/bold]

      permille query "SELECT name, max(end_ns - start_ns) AS longest FROM calls GROUP BY name ORDER BY 2 DESC LIMIT 10"
    """
    text = _utf8(sys.stdin.read() if sql == "-" else sql)
    found = in_mesh(invocation.config, lambda client: tables.query(client, text, max_rows))
    if invocation.as_json:
        for piece in answer_json(found.columns, found.blocks(), found.truncated):
            sys.stdout.write(piece)
        return
    print_answer(invocation.console, found.columns, found.blocks)
    if found.truncated:
        invocation.notes.print(f"there are more than {max_rows:,} rows: --max-rows, or `permille export` for all")


def _utf8(text: str) -> str:
    """What Python could not read because the locale has no UTF-8; what is none stays as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="surrogateescape")
    return text
