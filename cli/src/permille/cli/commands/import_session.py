"""`permille import`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from permille.api.decoder.v1 import decoder_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.capture_file import Given, open_capture
from permille.cli.capture_options import reading
from permille.cli.client import MeshClient, in_mesh
from permille.cli.invocation import Invocation, command
from permille.cli.patience import Patience
from permille.cli.progress_display import ProgressDisplay
from permille.cli.rendering.alike import without_most_alike
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.units import count, size
from permille.cli.report_data import decode
from permille.cli.session_import.session_content import SessionContent, session_content
from permille.cli.session_import.session_sending import Sent, send_session
from permille.cli.session_list import ListedSession
from permille.mesh.errors import Cancelled

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command("import")
@command
@reading
def import_session(
    invocation: Invocation,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The recording: a file, or the folder of one; `-` is standard input.", readable=False
        ),
    ],
    *,
    given: Given,
    patience_s: Annotated[
        float,
        typer.Option("--patience", min=1, metavar="SECONDS", help="How long to wait for a mesh that does not answer."),
    ] = 120.0,
) -> None:
    """Make a session of a recording that another tool made.

    FILE is what [bold]permille pt[/bold] reads: a perf.data of `perf record -e intel_pt//`, an LLDB trace bundle, a
    Griffin container, packets with their code. It is read here, stored and decoded by the mesh; then it is a session as
    any other: sessions, report, query, export and delete work on it.

    The binaries that ran are looked for at their paths and in --symbols, and stored once. Without them what ran in them
    is a loss that says so; import again with them, which makes another session. The same file with the same binaries
    is one session however often it is imported.

    [bold]Examples[/bold]

      permille import perf.data

      permille import perf.data --symbols ./binaries --kcore kcore_dir/kcore --kallsyms kcore_dir/kallsyms
    """
    with (
        tempfile.TemporaryDirectory(prefix="permille-import-") as folder,
        ProgressDisplay(invocation.notes, silent=invocation.as_json) as display,
    ):
        all_sent = False

        def storing(done: int, total: int) -> None:
            nonlocal all_sent
            all_sent = done == total
            told(done, total)

        try:
            content = _read(file, given, Path(folder), display)
            patience, told = Patience(patience_s, display.away), _told(display, "STORING")
            sent = in_mesh(invocation.config, lambda client: send_session(client, content, storing, patience))
        except KeyboardInterrupt:
            raise _interrupted(file, all_sent=all_sent) from None
        result = in_mesh(invocation.config, lambda client: _decode(client, sent, display, patience_s))
    _tell(invocation, content, sent, result)


def _interrupted(file: Path, *, all_sent: bool) -> Cancelled:
    if all_sent:
        what, outcome = "may be imported: interrupted while the last of it was stored", "takes up what is there"
    else:
        what, outcome = "is not imported: interrupted before all of it was stored", "begins anew; nothing of it is left"
    return Cancelled(
        f"{file} {what}",
        reason="INTERRUPTED",
        help=f"the same command {outcome}",
        metadata={"file": str(file)},
    )


def _read(file: Path, given: Given, folder: Path, display: ProgressDisplay) -> SessionContent:
    display.tell(operation_pb2.Progress(stage="READING"))
    capture = open_capture(file, given)
    return session_content(capture, file, folder / "code.bin", _told(display, "READING"))


def _told(display: ProgressDisplay, stage: str) -> Callable[[int, int], None]:
    """Shows bytes done and to be done."""
    return lambda done, total: display.tell(
        operation_pb2.Progress(stage=stage, completed=done, total=total, unit="bytes")
    )


async def _decode(
    client: MeshClient, sent: Sent, display: ProgressDisplay, patience_s: float
) -> decoder_pb2.DecodeResult:
    session = ListedSession(name=sent.session.session, state="STORED")
    # What was decoded before had less.
    once = "" if sent.session.existed and sent.has_more else f"import-{sent.session.recording[:32]}"
    return await decode(client, session, display, patience_s=patience_s, request_id=once)


def _tell(
    invocation: Invocation,
    content: SessionContent,
    sent: Sent,
    result: decoder_pb2.DecodeResult,
) -> None:
    session, notes = sent.session, [*content.manifest["notes"], *sent.notes]
    if invocation.as_json:
        invocation.print_json(
            {
                "session": session.session,
                "existed": session.existed,
                "kind": content.capture.kind,
                "raw_bytes": result.raw_bytes,
                "stored_bytes": session.stored_bytes,
                "lost_bytes": result.lost_bytes,
                "instructions": result.instructions,
                "calls": result.calls,
                "notes": notes,
            }
        )
        return
    for note in without_most_alike(notes, "--json lists all"):
        invocation.notes.print(f"note: {escaped(note)}", markup=False)
    known = ", which was there already" if session.existed else f", {size(result.raw_bytes)} of packets"
    lost = f", {size(result.lost_bytes)} lost" if result.lost_bytes else ""
    name = session.session
    session_id = name.rpartition("/")[2]
    invocation.console.print(
        f"session {name}{known}: {count(result.instructions)} instructions, {count(result.calls)} calls{lost}",
        markup=False,
    )
    invocation.console.print(invocation.hint("report", session_id), markup=False)
