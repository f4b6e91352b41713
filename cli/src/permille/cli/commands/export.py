"""`permille export`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from permille.api.decoder.v1 import decoder_pb2
from permille.cli.client import MeshClient, in_mesh, parts
from permille.cli.html_page import MOST_LEVELS
from permille.cli.invocation import Invocation, command
from permille.cli.output_file import write_file_from
from permille.cli.rendering.more_rows import MOST_CALLS
from permille.cli.rendering.no_calls import no_calls_text
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.units import size
from permille.cli.session_list import LATEST, ListedSession, chosen, list_sessions
from permille.mesh.errors import InvalidArgument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Format(StrEnum):
    """What other tools read."""

    PERFETTO = "perfetto"
    SPEEDSCOPE = "speedscope"
    FOLDED = "folded"
    PPROF = "pprof"
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


# Each stack of a profile names all of its levels: whole, a recursion takes the square of its depth.
_PROFILES = (Format.FOLDED, Format.PPROF)
# As the API counts levels.
_DEEPEST = (1 << 31) - 1
_TABLES = (Format.CSV, Format.PARQUET, Format.JSON)
_BINARY = (Format.PERFETTO, Format.PPROF, Format.PARQUET)


@app.command()
@command
def export(
    invocation: Invocation,
    session: Annotated[str, typer.Argument(metavar="[SESSION]", help="As for `permille report`.")] = LATEST,
    *,
    form: Annotated[Format, typer.Option("--format", "-F", help="The format to write.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file; `-` is standard output. Default: a name of its own.",
            readable=False,
        ),
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="For csv, parquet and json: calls, functions, edges, accesses, inlined, losses, segments or sessions."
            " Default: calls.",
        ),
    ] = "",
    max_calls: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_CALLS,
            metavar="N",
            help="For time lines and profiles: keep the N longest calls; 0: all.",
        ),
    ] = 0,
    max_depth: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=_DEEPEST,
            metavar="N",
            help="For time lines and profiles: keep the calls of the outermost N levels; 0: all."
            f" Default: {MOST_LEVELS} for folded and pprof, else all.",
        ),
    ] = None,
) -> None:
    """Write a session for another tool.

    perfetto opens at ui.perfetto.dev or in trace_processor, speedscope in speedscope, folded in flamegraph.pl, pprof
    in `pprof`. csv, parquet and json hold the rows of one table.

    [bold]Examples[/bold]

      permille export latest --format perfetto -o session.perfetto-trace

      permille export --format csv --table functions -o -
    """

    levels = max_depth if max_depth is not None else MOST_LEVELS if form in _PROFILES else 0

    async def work(client: MeshClient) -> tuple[ListedSession, Path | None, int, _Pieces]:
        wanted = chosen(await list_sessions(client), session)
        decoder = await client.decoder()
        request = decoder_pb2.ExportRequest(
            session=wanted.name,
            format=decoder_pb2.Format.Value(f"FORMAT_{form.name}"),
            table=table,
            max_calls=max_calls,
            max_depth=levels,
        )
        stream = _Pieces(parts(decoder.Export(request)))
        first = await stream.first()
        file = output or Path(stream.file_name)
        if str(file) == "-":
            return wanted, None, await _to_stdout(stream.all(first), form), stream
        return wanted, file, await write_file_from(file, stream.all(first)), stream

    exported, file, size_bytes, told = in_mesh(invocation.config, work)
    if file is not None and invocation.as_json:
        left_out = {"omitted_calls": told.omitted_calls, "deeper_calls": told.deeper_calls}
        invocation.print_json({"session": exported.name, "file": str(file), "size_bytes": size_bytes, **left_out})
    elif file is not None:
        invocation.console.print(f"wrote {escaped(str(file))} ({size(size_bytes)})", markup=False)
    if invocation.as_json:
        return
    if not exported.calls and form not in _TABLES:
        invocation.notes.print(no_calls_text("what was exported", [exported.name]), markup=False)
    if told.omitted_calls:
        invocation.notes.print(f"{told.omitted_calls:,} short calls are left out: --max-calls 0 keeps all")
    if told.deeper_calls:
        below = f"{told.deeper_calls:,} calls below {levels:,} levels are left out"
        invocation.notes.print(f"{below}, what they did is their callers' own: --max-depth 0 keeps all")


class _Pieces:
    """The answer's data; what is said beside them."""

    def __init__(self, answers: AsyncIterator[decoder_pb2.ExportResponse]) -> None:
        self.file_name = ""
        self.omitted_calls = self.deeper_calls = 0
        self._answers = answers

    async def first(self) -> bytes:
        """The first piece: an error comes instead of it, before any file is begun."""
        async for part in self._answers:
            self.file_name = part.file_name
            self._count(part)
            return part.data
        return b""

    async def all(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        async for part in self._answers:
            self._count(part)
            yield part.data

    def _count(self, part: decoder_pb2.ExportResponse) -> None:
        self.omitted_calls = part.omitted_calls or self.omitted_calls
        self.deeper_calls = part.deeper_calls or self.deeper_calls


async def _to_stdout(pieces: AsyncIterator[bytes], form: Format) -> int:
    if form in _BINARY and sys.stdout.isatty():
        raise InvalidArgument(
            f"{form} is binary and the terminal is not",
            reason="BINARY_TO_TERMINAL",
            help="write a file: -o FILE, or pipe it on",
        )
    written = 0
    async for piece in pieces:
        written += sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return written
