"""`permille pt`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from permille.cli.capture_file import Given, chosen_streams, open_capture, read_categories
from permille.cli.capture_options import reading
from permille.cli.invocation import Invocation, command
from permille.cli.rendering.alike import without_most_alike
from permille.cli.rendering.stat_text import peak_memory_bytes, stat_lines, total
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.undebugged_text import undebugged_text
from permille.mesh.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from permille.ptcore import Capture, Stream

app = typer.Typer(
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    help="""Read Processor Trace that was recorded elsewhere: counts, packets, instructions, calls.

    FILE is told by its content, also within gzip or zstd: a perf.data of `perf record -e intel_pt//`, an LLDB trace
    bundle (its folder or trace.json), the folder of a session in the object store, a Griffin container, or a file of
    packets alone, which needs the code that ran (--image). What comes through a pipe is read to its end before anything
    else. No mesh is needed.

    A recording holds one stream for each thread, or for each core; `permille pt stat` lists them with their numbers.
    dump, flow and calls write while they decode: `| head` ends them at once. With --json they write one object a line.
    Addresses are strings in hexadecimal, times are ticks of the time stamp counter, and null is what is not known.
    """,
)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The recording; `-` is standard input.", readable=False)]
_StreamOption = Annotated[
    list[int] | None,
    typer.Option("--stream", "-s", min=0, metavar="N", help="Only the stream of this number; may be repeated."),
]
# As the decoder's module counts levels.
_DEEPEST = (1 << 32) - 1
_Listed = tuple["Capture", list[int], Iterable[bytes]]
"""A recording, the numbers of its streams that are listed, and their lines."""
_Thread = Annotated[int | None, typer.Option(metavar="TID", help="Only what this thread ran.")]


@app.command()
@command
@reading
def stat(
    invocation: Invocation,
    file: _File,
    *,
    given: Given,
    stream: _StreamOption = None,
    packets_only: Annotated[bool, typer.Option("--packets-only", help="Count packets, decode no code.")] = False,
) -> None:
    """Count what a recording holds.

    Bytes, packets by kind, instructions, blocks, branches by kind, calls, returns, compressed returns, TNT bits, errors
    with their offsets, lost bytes, and the range of times, for each stream. With return compression TNT bits are
    conditional branches and compressed returns together; what is lost is not in either.

    [bold]Examples[/bold]

      permille pt stat perf.data

      permille pt stat trace.pt --image ./a.out:0x1000:0x2000:0x401000 --json
    """
    capture = open_capture(file, given)
    _tell_warnings(invocation, capture)
    streams = chosen_streams(capture, file, stream or (), None)
    counted = [_counted(capture, one, flow=not packets_only) for one in streams]
    told: dict[str, Any] = {
        "file": str(file),
        "kind": capture.kind,
        "cpu": "/".join(map(str, capture.cpu)) if capture.cpu else None,
        "warnings": capture.warnings,
        "streams": counted,
        "total": total(counted),
        "peak_memory_bytes": peak_memory_bytes(),
    }
    if invocation.as_json:
        invocation.print_json(told)
    else:
        for line in stat_lines(told):
            sys.stdout.write(escaped(line) + "\n")
    flow = told["total"]["flow"]
    missing = any(error["reason"].startswith("no-code") for one in counted for error in one["errors"])
    if flow is not None and flow["instructions"] == 0 and missing:
        known = any(one["threads"] for one in counted)
        invocation.notes.print(_no_code(capture.kind, file, known=known), markup=False)


@app.command()
@command
@reading
def dump(
    invocation: Invocation,
    file: _File,
    *,
    given: Given,
    stream: _StreamOption = None,
    thread: _Thread = None,
) -> None:
    """Write the packets, one a line: offset, name, payload.

    Offsets are hexadecimal and those of the stream. Addresses are completed from the packets before. T is a branch
    that was taken, N one that was not, the oldest first. Bytes that are no packet are an error line; it goes on at the
    next PSB.

    [bold]Example[/bold]: permille pt dump perf.data --stream 2 | head -100
    """

    def listed(*, beginnings: bool) -> _Listed:
        capture = open_capture(file, given, packets_only=thread is None, beginnings=beginnings)
        streams = [one.index for one in chosen_streams(capture, file, stream or (), thread)]
        return capture, streams, capture.dump(streams, thread=thread, json=invocation.as_json)

    _write(invocation, listed, beginnings=thread is None and file.is_file())


@app.command()
@command
@reading
def flow(
    invocation: Invocation,
    file: _File,
    *,
    given: Given,
    blocks: Annotated[bool, typer.Option("--blocks", "-b", help="One line for each block, not instruction.")] = False,
    stream: _StreamOption = None,
    thread: _Thread = None,
) -> None:
    """Write every instruction that ran, in order: address, text, function.

    Lines in brackets say what happened between two instructions: tracing was enabled, disabled, interrupted, the
    processor lost packets, bytes could not be decoded, another thread came. A block is a run of instructions without a
    branch before the last; it has the time, its first and last address, how it was left and where to.

    [bold]Examples[/bold]

      permille pt flow trace.griffin.gz | grep 'call' | head

      permille pt flow trace.json --thread 3497497 --blocks --json
    """

    def listed(*, beginnings: bool) -> _Listed:
        capture, streams = _with_code(file, given, stream or (), thread, beginnings=beginnings)
        return capture, streams, capture.flow(streams, blocks=blocks, thread=thread, json=invocation.as_json)

    _write(invocation, listed, beginnings=thread is None and file.is_file())


@app.command()
@command
@reading
def calls(
    invocation: Invocation,
    file: _File,
    *,
    given: Given,
    table: Annotated[
        bool, typer.Option("--table", "-t", help="One line for each function with its totals, not for each call.")
    ] = False,
    categories: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --table: rules of your own for what functions are for.", readable=False
        ),
    ] = None,
    inlined: Annotated[
        bool,
        typer.Option(
            "--inlined",
            help="Say in which inlined functions of its caller a call stands; with --table, how many instructions of"
            " each function belong to what was inlined into it. Needs debug information.",
        ),
    ] = False,
    depth: Annotated[
        int,
        typer.Option(
            "--depth", "-d", min=0, max=_DEEPEST, metavar="N", help="Without --table: at most N levels; 0: all."
        ),
    ] = 0,
    stream: _StreamOption = None,
    thread: _Thread = None,
) -> None:
    """Write every call when it ends: begin, duration, instructions of its own and with its callees.

    The calls that it made stand before it, further to the right.

    Behind the name: "began before" and "not over" for calls whose begin or end is not in the recording, "tail call"
    for one entered by a jump, "signal" for one that interrupted its caller, "unwound" for one that a longjmp or an
    exception ended. Functions without a name are called by module and address.

    [bold]Examples[/bold]

      permille pt calls perf.data --symbols ./server --thread 1234 --depth 5

      permille pt calls perf.data --table | head -20
    """
    _refuse_in_vain(table=table, categories=categories, depth=depth)
    rules = read_categories(categories)

    def listed(*, beginnings: bool) -> _Listed:
        capture, streams = _with_code(file, given, stream or (), thread, beginnings=beginnings)
        batches = capture.calls(
            streams,
            table=table,
            categories=rules,
            inlined=inlined,
            max_depth=depth,
            thread=thread,
            json=invocation.as_json,
        )
        return capture, streams, batches

    beginnings = thread is None and not table and file.is_file()
    if not _write(invocation, listed, beginnings=beginnings, absent=True):
        invocation.notes.print(_no_calls(file), markup=False)


def _refuse_in_vain(*, table: bool, categories: Path | None, depth: int) -> None:
    if table and depth:
        raise InvalidArgument(
            "--table and --depth exclude each other",
            reason="TABLE_OPTIONS",
            help="leave --depth out: the totals are those of all levels",
        )
    if categories is not None and not table:
        raise InvalidArgument(
            "--categories says nothing without --table",
            reason="TABLE_OPTIONS",
            help="add --table: only the table has categories",
        )


def _with_code(
    file: Path, given: Given, wanted: Sequence[int], thread: int | None, *, beginnings: bool
) -> tuple[Capture, list[int]]:
    # Which streams a thread ran in has to be known before.
    capture = open_capture(file, given, as_listed=thread is None, beginnings=beginnings)
    streams = chosen_streams(capture, file, wanted, thread)
    # Records of perf beside the packets say who ran, and what was mapped.
    nobody = not any(pid for stream in capture.streams() for pid, _, _ in stream.threads)
    if capture.kind == "raw" and not given.images and nobody:
        raise FailedPrecondition(
            f"{file} holds packets alone: which instructions ran stands in the code",
            reason="NO_CODE",
            help="name it with --image FILE:OFFSET:SIZE:ADDRESS; `permille pt dump` needs none",
            metadata={"file": str(file)},
        )
    return capture, [one.index for one in streams]


def _counted(capture: Capture, stream: Stream, *, flow: bool) -> dict[str, Any]:
    told = capture.stat(stream.index, flow=flow)
    by_thread = told["flow"].pop("instructions_by_thread") if flow else {}
    threads = [
        {"pid": pid, "tid": tid, "name": name, "instructions": by_thread.get((pid, tid), 0) if flow else None}
        for pid, tid, name in stream.threads
    ]
    return {
        "index": stream.index,
        "name": stream.name,
        "core": stream.core,
        "threads": threads,
        "recorder_losses": stream.lost,
        **told,
    }


def _no_code(kind: str, file: Path, *, known: bool) -> str:
    """`known`: threads that ran."""
    if kind == "raw":
        what, way_out = (
            f"the code that {file} ran is not known.",
            "Name it with --image, or with --sideband and --symbols",
        )
    elif known:
        what, way_out = f"the code that {file} ran is not known.", "Name it with --symbols"
    else:
        what, way_out = f"who ran in {file} is not known.", "Record with what warnings name"
    return f"no instruction could be decoded: {what} {way_out}, or count packets alone: --packets-only"


def _no_calls(file: Path) -> str:
    return f"there is no call in what could be decoded of {file}: `permille pt stat` tells what was lost, and why"


def _tell_warnings(invocation: Invocation, capture: Capture, told: int = 0) -> None:
    """`told`: how many were told before."""
    for warning in without_most_alike(capture.warnings[told:], "permille pt stat --json lists all"):
        invocation.notes.print(f"warning: {escaped(warning)}", markup=False)


def _tell_undebugged(invocation: Invocation, capture: Capture) -> None:
    if names := capture.undebugged():
        invocation.notes.print(f"warning: {escaped(undebugged_text(names))}", markup=False)


def _tell_absent(invocation: Invocation, capture: Capture) -> None:
    absent = sorted(capture.absent())
    for line in without_most_alike(absent, "--symbols FOLDER says where they are"):
        invocation.notes.print(f"warning: {escaped(line)}", markup=False)
    if absent:
        invocation.notes.print(
            "name the folder of these files with --symbols FOLDER; a .dwp file with the binary's name is as good as"
            " its .dwo files",
            markup=False,
        )


def _write(invocation: Invocation, listed: Callable[..., _Listed], *, beginnings: bool, absent: bool = False) -> int:
    """Whole batches, so that a reader that has seen enough ends the decode with the next one.

    Of streams that would have to be put together first, the beginnings are listed (`beginnings`), and only then all.
    `absent`: debug information that was looked for in vain is told. Returns how many bytes were written.
    """
    capture, streams, batches = listed(beginnings=beginnings)
    _tell_warnings(invocation, capture)
    told = len(capture.warnings)
    cut = any(one.cut for one in capture.streams() if one.index in streams)
    try:
        written = _write_behind(0, batches)
        if cut:
            capture, _, batches = listed(beginnings=False)
            told = len(capture.warnings)
            written = _write_behind(written, batches)
        return written
    finally:
        # What is not certain of who ran, and which debug information is wanted, the flow tells.
        _tell_warnings(invocation, capture, told)
        if absent:
            _tell_absent(invocation, capture)
            _tell_undebugged(invocation, capture)


def _write_behind(written: int, batches: Iterable[bytes]) -> int:
    """Leaves out as many bytes as were written before; returns how many there are."""
    size = 0
    for batch in batches:
        sys.stdout.buffer.write(batch[max(written - size, 0) :])
        size += len(batch)
    sys.stdout.buffer.flush()
    return size
