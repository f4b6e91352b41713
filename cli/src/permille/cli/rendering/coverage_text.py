"""Plans with their reasons, rounds with theirs, and what replicas' sessions make together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from permille.api.coverage.v1 import coverage_pb2
from permille.cli.rendering.more_rows import more_text
from permille.cli.rendering.no_calls import no_calls_text
from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.table_layout import Column, number
from permille.cli.rendering.text_table import TextTable
from permille.cli.rendering.trace_lines import estimate_line, not_planned_lines, unreachable_line
from permille.cli.rendering.units import count, share, size
from rich.console import RenderableType
from rich.text import Text

_MOST_ROWS = 30


def coverage_text(found: coverage_pb2.GetCoverageResponse) -> Iterator[RenderableType]:
    """By build what has been seen, by session what it brought, and the merged functions.

    Where no session has a call that is said instead of what has been seen.
    """
    if found.replicas and not any(replica.functions for replica in found.replicas):
        yield cell(no_calls_text("what was recorded", [replica.session for replica in found.replicas]))
    else:
        yield _version_table(found.versions)
    yield ""
    table = TextTable(
        Column("SESSION"),
        number("TRACE", rank=4),
        number("FUNCTIONS"),
        number("FILLED", rank=1),
        number("ONLY HERE", rank=2),
        number("CALLS BETWEEN", rank=3),
        number("FILLED", rank=3),
        number("ALIKE"),
        title="Sessions, and what the others fill in",
    )
    for replica in found.replicas:
        table.add_row(
            cell(replica.session),
            size(replica.raw_bytes),
            count(replica.functions),
            count(replica.filled_functions),
            count(replica.functions_only_here),
            count(replica.edges),
            count(replica.filled_edges),
            f"{100 * replica.accuracy:.1f} %",
        )
    yield table
    if found.older_sessions:
        yield cell(f"{count(found.older_sessions)} older sessions are not looked at")
    if found.functions:
        yield ""
        yield _function_table(found)
    if found.edges:
        yield ""
        yield _edge_table(found)
    if found.paths:
        yield ""
        yield _path_table(found)


def plan_text(plan: coverage_pb2.Plan) -> Iterator[RenderableType]:
    """The cost, each session's period with its reasons, who is chosen and why, and what will be missing."""
    yield cell(estimate_line(plan))
    if left_out := unreachable_line(plan):
        yield cell(left_out)
    yield from map(Text, not_planned_lines(plan))
    yield cell(f"cores traced: {plan.expected_core_seconds:.2f} core-seconds")
    yield cell(slowdown_line(plan))
    if plan.later:
        yield cell(f"one first; {count(len(plan.later))} more may follow, one at a time, while they pay")
    for session in plan.nodes[:_MOST_ROWS]:
        if session.period_terms:
            yield ""
            yield _term_table(
                f"Why {session.period_ms} ms on {session.node.removeprefix('nodes/')}", session.period_terms
            )
    if plan.sample_terms:
        yield ""
        yield _term_table("Why so many", plan.sample_terms)
    yield ""
    table = TextTable(
        Column("NODE"),
        Column("ZONE", rank=1),
        number("PID"),
        Column("NAME", least=12),
        Column("RECORDED"),
        Column("WHY", least=20),
        title="Instances",
    )
    for choice in plan.choices[:_MOST_ROWS]:
        table.add_row(
            choice.node.removeprefix("nodes/"),
            choice.zone,
            str(choice.pid),
            cell(choice.process_name),
            "yes" if choice.chosen else "no",
            cell(choice.reason),
        )
    yield table
    if len(plan.choices) > _MOST_ROWS:
        yield cell(f"{count(len(plan.choices) - _MOST_ROWS)} more: --json lists all")
    yield ""
    if plan.coverage:
        yield _version_table(plan.coverage, after=True)
    else:
        yield cell("what will be missing is unknown: no session of it is decoded, or the tables do not answer")


def slowdown_line(plan: coverage_pb2.Plan) -> str:
    """By how much targets get slower while they are recorded, or that it is unknown, and what they write."""
    written = max(session.expected_bytes_per_second for session in plan.nodes) / 1e6
    known = [session.expected_slowdown for session in plan.nodes if session.HasField("expected_slowdown")]
    told = f"{share(max(known), 1)} slower" if len(known) == len(plan.nodes) else "slower by an unknown share"
    missing = "" if len(known) == len(plan.nodes) else ": nobody measured it (slowdowns of [coverage])"
    return f"while it is recorded: {told}{missing}; at most {written:.1f} MB/s of trace from a process"


def rounds_text(result: coverage_pb2.CoverageResult) -> Iterator[RenderableType]:
    """What each round brought and why another one followed."""
    if not result.rounds:
        return
    numbers = map(number, ("ROUND", "TRACE", "NEW FUNCTIONS", "ALL"))
    table = TextTable(*numbers, Column("THEN"), Column("WHY", least=20), title="Rounds")
    for nth, done in enumerate(result.rounds, 1):
        table.add_row(
            str(nth),
            size(done.raw_bytes),
            count(done.new_functions),
            count(done.functions),
            _then(done),
            cell(done.reason),
        )
    yield table


def coverage_json(found: coverage_pb2.GetCoverageResponse) -> dict[str, Any]:
    """For programs: fields as in the API, numbers as numbers."""
    return _plain(found)


def rounds_json(found: coverage_pb2.Plan | coverage_pb2.CoverageResult) -> dict[str, Any]:
    """What `trace` does not tell of a plan or a result."""
    told = _plain(found)
    if isinstance(found, coverage_pb2.CoverageResult):
        return {"rounds": told["rounds"]}
    names = ("choices", "coverage", "later", "sample_terms", "expected_core_seconds")
    return {name: told[name] for name in names} | {"period_terms": [node["period_terms"] for node in told["nodes"]]}


def _plain(message: Message) -> dict[str, Any]:
    """64-bit numbers are texts in protobuf's JSON; programs want numbers."""
    told = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    numbers: dict[str, Any] = _numbers(told, message)
    return numbers


def _numbers(told: dict[str, Any], message: Message) -> dict[str, Any]:
    for field in message.DESCRIPTOR.fields:
        if field.name not in told:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and isinstance(told[field.name], list):
            told[field.name] = [_numbers(one, part) for one, part in zip(told[field.name], value, strict=True)]
        elif field.message_type is not None:
            _numbers(told[field.name], value)
        elif isinstance(told[field.name], str) and isinstance(value, int) and field.enum_type is None:
            told[field.name] = value
        elif isinstance(told[field.name], list):
            told[field.name] = list(value)
    return told


def _then(done: coverage_pb2.Round) -> str:
    return {
        coverage_pb2.Round.ACTION_REPLICA: "another replica",
        coverage_pb2.Round.ACTION_LONGER: "longer",
        coverage_pb2.Round.ACTION_STOP: "enough",
    }.get(done.next, "")


def _version_table(versions: Sequence[coverage_pb2.VersionCoverage], *, after: bool = False) -> TextTable:
    table = TextTable(
        Column("MODULE", least=10),
        Column("BUILD", rank=4),
        number("SESSIONS", rank=5),
        number("FUNCTIONS"),
        number("UNSEEN"),
        number("SEEN", rank=1),
        number("NEXT SESSION", rank=2),
        number("CALLS BETWEEN", rank=3),
        number("UNSEEN", rank=3),
        *([number("MISSING AFTER")] if after else []),
        title="Seen, and estimated to be missing, by binary",
    )
    for version in versions:
        alone = version.sessions < 2
        row: list[Text | str] = [
            cell(PurePath(version.module).name),
            version.build_id[:12],
            count(version.sessions),
            count(version.functions.seen),
            "?" if alone else f"{version.functions.unseen:.1f}",
            "?" if alone else share(version.functions.sample_coverage, 1),
            "?" if alone else f"+{version.functions.next_session:.1f}",
            count(version.edges.seen),
            "?" if alone else f"{version.edges.unseen:.1f}",
        ]
        table.add_row(*row, *(["?" if alone else f"{version.missing_after:.1f}"] if after else []))
    return table


def _function_table(found: coverage_pb2.GetCoverageResponse) -> TextTable:
    table = TextTable(
        Column("FUNCTION", least=20),
        Column("MODULE", least=10, rank=3),
        number("SESSIONS", rank=2),
        number("CALLS", rank=1),
        number("SELF INSN"),
        number("%"),
        title="Functions of all sessions together",
        caption=more_text(len(found.functions), found.functions_total, "--top"),
    )
    for function in found.functions:
        table.add_row(
            cell(function.name),
            cell(PurePath(function.module).name),
            count(function.sessions),
            count(function.calls),
            count(function.self_instructions),
            share(function.share, 1).removesuffix(" %"),
        )
    return table


def _edge_table(found: coverage_pb2.GetCoverageResponse) -> TextTable:
    table = TextTable(
        Column("CALL", least=20),
        Column("MODULE", least=10, rank=2),
        number("SESSIONS", rank=1),
        number("CALLS"),
        number("%"),
        title="Calls of one function by another, of all sessions together",
        caption=more_text(len(found.edges), found.edges_total, "--top"),
    )
    for edge in found.edges:
        table.add_row(
            cell(f"{edge.caller} > {edge.callee}"),
            cell(PurePath(edge.callee_module).name),
            count(edge.sessions),
            count(edge.calls),
            share(edge.share, 1).removesuffix(" %"),
        )
    return table


def _path_table(found: coverage_pb2.GetCoverageResponse) -> TextTable:
    other = f"{count(found.path_calls_left_out)} calls have other paths; at least {count(found.paths_total)} in all"
    table = TextTable(
        Column("PATH", least=20),
        Column("MODULE", least=10, rank=3),
        number("SESSIONS", rank=2),
        number("CALLS", rank=1),
        number("INSN"),
        number("%"),
        title="Call paths of all sessions together, the heaviest",
        caption=f"{other}: --paths" if found.path_calls_left_out else None,
    )
    depths: list[int] = []
    for path in found.paths:
        depths.append(depths[path.caller - 1] + 1 if path.caller else 0)
        table.add_row(
            cell(" " * depths[-1] + path.name),
            cell(PurePath(path.module).name),
            count(path.sessions),
            count(path.calls),
            count(path.total_instructions),
            share(path.share, 1).removesuffix(" %"),
        )
    return table


def _term_table(title: str, terms: Sequence[coverage_pb2.Term]) -> TextTable:
    numbers = map(number, ("VALUE", "WEIGHT", "MAKES"))
    table = TextTable(Column("TERM", least=12), *numbers, Column("", least=20), title=title)
    for term in terms:
        table.add_row(term.name, f"{term.value:.2f}", f"{term.weight:g}", f"{term.contribution:.1f}", cell(term.detail))
    return table
