"""The list of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from permille.cli.rendering.table_cell import cell
from permille.cli.rendering.table_layout import Column, number
from permille.cli.rendering.text_table import TextTable
from permille.cli.rendering.units import count, duration, moment, share, size

_COLOURS = {"DECODED": "green", "FAILED": "red", "STORED": "yellow"}


class SessionLosses(Protocol):
    """What a session recorded, and what it lost: of that, what is not among the recorded bytes."""

    @property
    def raw_bytes(self) -> int: ...
    @property
    def lost_bytes(self) -> int: ...
    @property
    def unrecorded_bytes(self) -> int: ...


def session_table(sessions: Sequence[Any]) -> TextTable:
    """One row for each `ListedSession`, the newest first."""
    kept = any(one.kept_until_ns for one in sessions)
    table = TextTable(
        Column("SESSION"),
        Column("TARGET", least=12),
        Column("STARTED (UTC)", rank=4),
        Column("STATE"),
        number("LENGTH", rank=5),
        number("TRACE", rank=6),
        number("LOST", rank=1),
        number("INSTRUCTIONS", rank=2),
        number("CALLS", rank=7),
        *([Column("KEPT UNTIL (UTC)", rank=3)] if kept else []),
        head_style="bold",
    )
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
            count(one.instructions) if one.state == "DECODED" else "",
            count(one.calls) if one.state == "DECODED" else "",
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
