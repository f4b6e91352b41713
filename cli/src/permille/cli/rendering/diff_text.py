"""What two recordings did differently, on the terminal and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from permille.api.coverage.v1 import coverage_pb2
from permille.cli.rendering.more_rows import more_text
from permille.cli.rendering.no_calls import no_calls_text
from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.table_layout import Column, number
from permille.cli.rendering.text_table import TextTable
from permille.cli.rendering.units import count
from rich.console import RenderableType

Difference = coverage_pb2.Difference


def diff_text(found: coverage_pb2.DiffCoverageResponse, measure: str) -> Iterator[RenderableType]:
    """Who is compared, then functions, then calls, then call paths where they were asked for.

    Where a side has no calls at all there is nothing to compare: that is said instead.
    """
    yield cell(f"A: {', '.join(found.a)}")
    yield cell(f"B: {', '.join(found.b)}")
    if silent := _silent(found):
        for side, sessions in silent.items():
            yield cell(no_calls_text(side, sessions))
        return
    yield cell(f"alike: {100 * found.similarity:.1f} % of the calls' distribution over functions")
    for title, rows, total in (
        (f"Functions, by {measure}", found.functions, found.functions_total),
        ("Calls of one function by another", found.calls, found.calls_total),
    ):
        yield ""
        yield _table(title, rows, total) if rows else cell(f"{title}: no difference")
    if found.paths:
        yield ""
        yield _table("Call paths", found.paths, found.paths_total, option="--paths")
    if found.paths_left_out:
        yield cell(
            f"{count(found.paths_left_out)} paths are left out: of the other side only the heaviest were looked at"
        )


def _silent(found: coverage_pb2.DiffCoverageResponse) -> dict[str, Sequence[str]]:
    """The sides of which no session has a call, with their sessions."""
    sides, without = {"A": found.a, "B": found.b}, set(found.without_calls)
    return {side: sessions for side, sessions in sides.items() if sessions and without.issuperset(sessions)}


def diff_json(found: coverage_pb2.DiffCoverageResponse) -> dict[str, Any]:
    """For programs: fields as in the API, numbers as numbers."""
    return {
        "a": list(found.a),
        "b": list(found.b),
        "similarity": found.similarity,
        "functions_total": found.functions_total,
        "calls_total": found.calls_total,
        "functions": [_row_json(row) for row in found.functions],
        "calls": [{"caller": row.caller, **_row_json(row)} for row in found.calls],
        "paths_total": found.paths_total,
        "paths_left_out": found.paths_left_out,
        "paths": [{"callers": list(row.callers), **_row_json(row)} for row in found.paths],
    }


def change_text(row: Difference) -> str:
    """`only A`, `only B`, or how the share changed from A to B."""
    if row.only_in:
        return f"only {row.only_in.upper()}"
    if not row.share_a or not row.share_b:
        return ""
    times = row.share_b / row.share_a
    return f"x {times:.2f}" if math.isfinite(times) else ""


def _row_json(row: Difference) -> dict[str, Any]:
    return {
        "name": row.name,
        "module": row.module,
        "only_in": row.only_in,
        "count_a": row.count_a,
        "count_b": row.count_b,
        "share_a": row.share_a,
        "share_b": row.share_b,
        "sessions_a": row.sessions_a,
        "sessions_b": row.sessions_b,
        "statistic": row.statistic,
    }


def _table(title: str, rows: Sequence[Difference], total: int, *, option: str = "--top") -> TextTable:
    table = TextTable(
        Column("NAME", least=20),
        Column("MODULE", least=10, rank=3),
        number("CHANGE"),
        number("A"),
        number("A %", rank=1),
        number("B"),
        number("B %", rank=2),
        number("G", rank=4),
        title=title,
        caption=more_text(len(rows), total, option),
    )
    for row in rows:
        table.add_row(
            cell(" > ".join(filter(None, (row.caller, *row.callers, row.name)))),
            cell(PurePath(row.module).name),
            change_text(row),
            count(row.count_a),
            f"{100 * row.share_a:.3f}",
            count(row.count_b),
            f"{100 * row.share_b:.3f}",
            f"{row.statistic:,.1f}",
        )
    return table
