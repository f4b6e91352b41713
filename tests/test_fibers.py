"""Fibers of the same functions, which all wait behind the same call."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.whole_mesh import WholeMesh, session_of


@pytest.fixture
def program(tmp_path: Path) -> Path:
    program = tmp_path / "fibers"
    subprocess.run(["gcc", "-O1", "-o", program, Path(__file__).with_name("fibers.c")], check=True)
    return program


def test_no_call_begins_in_one_fiber_and_ends_in_another(mesh: WholeMesh, program: Path) -> None:
    with (
        mesh.running(str(program)) as target,
        mesh.started("trace", "--pid", str(target.pid), "--for", "200ms", "--json") as tracing,
    ):
        session = session_of(mesh.finished(tracing))
    rows = mesh.rows(
        "SELECT begin_truncated, end_truncated, count(*) AS calls FROM calls"
        f" WHERE session_id = '{session}' AND name = 'request' GROUP BY ALL"
    )
    parts = {(row["begin_truncated"], row["end_truncated"]): row["calls"] for row in rows}
    # Of each request one part up to where it waits, and one from there on.
    begun, resumed = parts.pop((False, True)), parts.pop((True, False))
    assert begun > 50 and abs(begun - resumed) <= 1, rows
    # Where the recording ended.
    assert sum(parts.values()) <= 1, rows
