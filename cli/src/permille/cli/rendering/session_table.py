"""The list of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.units import count, duration, moment, share, size
from rich.table import Table

_COLOURS = {"DECODED": "green", "FAILED": "red", "STORED": "yellow"}


def session_table(sessions: Sequence[Any]) -> Table:
    """One row for each `ListedSession`, the newest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("SESSION", "TARGET", "STARTED (UTC)", "STATE"):
        table.add_column(name, no_wrap=True)
    for name in ("LENGTH", "TRACE", "LOST", "INSTRUCTIONS", "CALLS"):
        table.add_column(name, justify="right", no_wrap=True)
    kept = any(one.kept_until_ns for one in sessions)
    if kept:
        table.add_column("KEPT UNTIL (UTC)", no_wrap=True)
    for one in sessions:
        length = one.end_ns - one.start_ns if one.end_ns > one.start_ns else one.period_ms * 1_000_000
        table.add_row(
            cell(one.session_id),
            cell(one.target),
            moment(one.start_ns),
            cell(one.state.lower(), style=_COLOURS.get(one.state, "")),
            duration(length),
            size(one.raw_bytes),
            lost_text(one.lost_bytes, one.raw_bytes),
            count(one.instructions) if one.instructions else "",
            count(one.calls) if one.calls else "",
            *([moment(one.kept_until_ns)[: len("2026-11-22 14:00")]] if kept else []),
        )
    return table


def lost_text(lost_bytes: int, raw_bytes: int) -> str:
    """How much was executed but not recorded, as a share of what was executed."""
    if not lost_bytes:
        return "0"
    return f"{size(lost_bytes)} ({share(lost_bytes, lost_bytes + raw_bytes)})"
