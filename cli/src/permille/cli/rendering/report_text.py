"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from permille.cli.rendering.alike import without_most_alike
from permille.cli.rendering.report import (
    CategoryRow,
    FunctionRow,
    Order,
    Report,
    SegmentRow,
    categories,
    largest_losses,
    notes,
    top,
)
from permille.cli.rendering.session_table import lost_text
from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.table_layout import Column, number
from permille.cli.rendering.terminal_text import escaped
from permille.cli.rendering.text_table import TextTable
from permille.cli.rendering.units import count, duration, moment, share, size
from rich.console import RenderableType
from rich.text import Text

_TITLES = {
    Order.SELF: "Top functions by self instructions",
    Order.TOTAL: "Top functions by total instructions (with what they call)",
    Order.SELF_TIME: "Top functions by self time",
    Order.TOTAL_TIME: "Top functions by total time (with what they call)",
    Order.CALLS: "Top functions by calls",
}

_BACKENDS = {
    "vpt": "vpt: a processor with Processor Trace in QEMU; times contain the emulation, instructions do not",
    "kmod": "kmod: the processor's own Processor Trace, through permille's kernel module",
    "perf": "perf: the processor's own Processor Trace, through the kernel's driver",
}
_COLUMNS = (
    Column("FUNCTION", least=20),
    Column("MODULE", least=10, rank=3),
    Column("CATEGORY", rank=7),
    number("CALLS", rank=4),
    number("SELF INSN", rank=1),
    number("%"),
    number("TOTAL INSN", rank=2),
    number("SELF TIME", rank=5),
    number("TOTAL TIME", rank=6),
)
_RANKED_BY = {
    Order.SELF: "SELF INSN",
    Order.TOTAL: "TOTAL INSN",
    Order.SELF_TIME: "SELF TIME",
    Order.TOTAL_TIME: "TOTAL TIME",
    Order.CALLS: "CALLS",
}
# So many lines below a function.
_MOST_INLINED = 5
_MOST_LOSSES = 15


def report_text(report: Report, orders: Sequence[Order], limit: int) -> Iterator[RenderableType]:
    """The session, one table of functions for each order, the categories, the losses, the notes."""
    for name, value in facts(report):
        yield Text.assemble((f"{name:<8}", "bold"), "  ", cell(value))
    for order in orders:
        if report.functions:
            yield ""
            yield _function_table(report, order, limit)
    if by_category := categories(report):
        yield ""
        yield _category_table(by_category, report.self_instructions)
    yield ""
    yield from _losses(report)
    told = {note.text: note.way_out for note in notes(report)}
    for text in without_most_alike(told, "--json lists all"):
        way_out = told.get(text)
        yield Text(f"note: {escaped(text)}" + (f"\n      {way_out}" if way_out else ""))


def facts(report: Report) -> list[tuple[str, str]]:
    """What the session was, each with its name."""
    session = report.session
    raw = session.raw_bytes
    per_instruction = f", {8 * raw / session.instructions:.2f} bits an instruction" if session.instructions else ""
    length = session.end_ns - session.start_ns
    return [
        ("session", session.name),
        ("target", f"{session.target}; {_recorded_text(report.segments)}"),
        (
            "recorded",
            f"{moment(session.start_ns)} UTC{f' for {duration(length)}' if length else ''}{asked_text(report)}",
        ),
        ("back end", backend_text(session.backend)),
        ("trace", f"{size(raw)} of packets, {size(session.stored_bytes)} stored{per_instruction}"),
        ("lost", lost_text(session)),
        *((("recorder", work),) if (work := recorder_text(session.counters)) else ()),
        (
            "executed",
            f"{count(session.instructions)} instructions, {count(session.calls)} calls,"
            f" {count(len(report.functions))} functions",
        ),
    ]


def _recorded_text(segments: Sequence[SegmentRow]) -> str:
    if not segments:
        # It may have had any number of them, all asleep.
        return "none of its threads left packets"
    # A thread has several segments where it ran on several cores.
    threads = {(segment.pid, segment.tid) for segment in segments}
    return f"processes: {len({pid for pid, _ in threads})}, threads: {len(threads)}"


def recorder_text(counters: Mapping[str, int]) -> str:
    """What the kernel module did for the recording; "" of others, which count no control operations."""
    if "operations_on" not in counters:
        return ""
    operations = counters["operations_on"] + counters.get("operations_off", 0)
    calls = counters.get("hook_calls", 0)
    hook = f", {counters.get('hook_ticks', 0) / calls:.0f} TSC ticks each" if calls else ""
    dropped = counters.get("records_dropped", 0)
    return (
        f"{count(operations)} control operations for {count(counters.get('arrivals', 0))} arrivals of the target,"
        f" {count(counters.get('retargets', 0))} moves of the filter, each two more; {count(calls)} hook calls{hook}"
        + (f"; {count(dropped)} switch records dropped" if dropped else "")
    )


def asked_text(report: Report) -> str:
    """How long it was to last and why it ended; what another tool recorded does not say."""
    session = report.session
    if session.stop_reason == "IMPORTED":
        return ""
    return f" (asked for {duration(session.period_ms * 1e6)}; {stop_text(session.stop_reason)})"


def stop_text(stop_reason: str) -> str:
    """Why a recording ended, in words."""
    return {
        "PERIOD": "the period was over",
        "STOPPED": "it was stopped",
        "TARGET_EXITED": "the program ended",
        "CONTROLLER_LOST": "the controller died",
    }.get(stop_reason, stop_reason.lower())


def backend_text(backend: str) -> str:
    """A back end with what it is."""
    recorder = backend.removeprefix("imported:")
    known = _BACKENDS.get(recorder)
    if recorder == backend:
        return known or backend
    return f"{known}; imported" if known else f"{recorder}, imported: Processor Trace that another tool recorded"


def _function_table(report: Report, order: Order, limit: int) -> TextTable:
    ranked = top(report.functions, order, limit)
    rest = len(report.functions) - len(ranked)
    more = f"{count(rest)} more functions: --top 0 shows all" if rest > 0 else None
    columns = [replace(one, rank=0) if one.head == _RANKED_BY[order] else one for one in _COLUMNS]
    table = TextTable(*columns, title=_TITLES[order], caption=more)
    for row in _function_rows(report, ranked):
        table.add_row(*row)
    return table


def _function_rows(report: Report, ranked: Sequence[FunctionRow]) -> Iterator[tuple[Text | str, ...]]:
    """Each function, and below it what is inlined into it."""
    whole = report.self_instructions
    for row in ranked:
        yield (
            function_text(row),
            cell(PurePath(row.module).name),
            row.category,
            count(row.calls),
            count(row.self_instructions),
            share(row.self_instructions, whole).removesuffix(" %"),
            count(row.total_instructions),
            duration(row.self_ns),
            duration(row.total_ns),
        )
        inside = report.inlined_into(row)
        for one in inside[:_MOST_INLINED]:
            instructions = (count(one.instructions), share(one.instructions, whole).removesuffix(" %"))
            yield cell(f"  inlined: {one.chain}", "dim"), "", "", "", *instructions, "", "", ""
        if len(inside) > _MOST_INLINED:
            more = cell(f"  and {count(len(inside) - _MOST_INLINED)} more: --json lists all", "dim")
            yield more, "", "", "", "", "", "", "", ""


def _category_table(rows: Sequence[CategoryRow], whole: int) -> TextTable:
    table = TextTable(
        Column("CATEGORY"),
        number("FUNCTIONS", rank=2),
        number("CALLS", rank=3),
        number("SELF INSN"),
        number("%"),
        number("SELF TIME", rank=1),
        title="What the functions are for",
    )
    for row in rows:
        table.add_row(
            row.category,
            count(row.functions),
            count(row.calls),
            count(row.self_instructions),
            share(row.self_instructions, whole).removesuffix(" %"),
            duration(row.self_ns),
        )
    return table


def function_text(row: FunctionRow) -> Text:
    """The name, with its place in the source where it is known."""
    text = cell(row.name, style="italic" if row.nameless else "")
    if row.file:
        file = escaped(PurePath(row.file).name)
        text.append(f"  {file}:{row.line}" if row.line else f"  {file}", "dim")
    return text


def _losses(report: Report) -> Iterator[RenderableType]:
    if not report.losses:
        yield cell("Losses: none" if not report.session.lost_bytes else "Losses")
        return
    table = TextTable(
        Column("REASON", least=20),
        number("PLACES", rank=2),
        number("TRACE"),
        number("TIME", rank=1),
        Column("WHAT MAKES IT LESS", least=20),
        title="Losses: what was executed and is not in this report",
    )
    for loss in largest_losses(report.losses, _MOST_LOSSES):
        table.add_row(
            cell(loss.reason),
            count(loss.places),
            size(loss.size_bytes) if loss.size_bytes else "",
            duration(loss.length_ns) if loss.length_ns else "",
            cell(loss.knob),
        )
    yield table
