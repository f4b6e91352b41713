"""The list of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.units import count, duration, moment, share, size
from rich.table import Table

_COLOURS = {"DECODED": "green", "FAILED": "red", "STORED": "yellow"}


class SessionLosses(Protocol):
    """What a session recorded, and what it lost: of that, what is not among the recorded bytes."""

    @property
    def raw_bytes(self) -> int: ...
    @property
    def lost_bytes(self) -> int: ...
    @property
    def unrecorded_bytes(self) -> int: ...


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
            # An imported recording may hold no times.
            duration(length) if length else "",
            size(one.raw_bytes),
            lost_text(one),
            count(one.instructions) if one.instructions else "",
            count(one.calls) if one.calls else "",
            *([moment(one.kept_until_ns)[: len("2026-11-22 14:00")]] if kept else []),
        )
    return table


def lost_text(session: SessionLosses) -> str:
    """How much was executed but not decoded, as a share of what was executed."""
    if not session.lost_bytes:
        return "0"
    # What cannot be decoded lies within what was recorded.
    executed_bytes = session.raw_bytes + session.unrecorded_bytes
    return f"{size(session.lost_bytes)} ({share(session.lost_bytes, executed_bytes)})"
