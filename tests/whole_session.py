"""What a session must have that a whole mesh has recorded, and tests that come while it is made."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.processes import PATIENCE_S, Process, await_true
from tests.whole_mesh import WholeMesh


def assert_whole(mesh: WholeMesh, session: str) -> dict[str, Any]:
    """The session is decoded, every row is there once, and what was lost is accounted for. Its report."""
    (doubled,) = mesh.rows(
        "SELECT "
        + ", ".join(
            f"(SELECT count(*) - count(DISTINCT {key}) FROM {table} WHERE session_id = '{session}') AS {table}"
            for table, key in (
                ("sessions", "session_id"),
                ("segments", "segment"),
                ("functions", "function"),
                ("calls", "(segment, call)"),
                ("edges", "(segment, from_address, to_address, kind)"),
                ("losses", "(segment, stream_offset, reason)"),
            )
        )
    )
    assert set(doubled.values()) == {0}, doubled
    report = mesh.report(session)
    counts = mesh.counts(session)
    assert counts["sessions"] == 1
    assert counts["calls"] == report["session"]["calls"]
    assert counts["functions"] == len(report["functions"])
    assert sum(row["self_instructions"] for row in report["functions"]) == report["session"]["instructions"]
    assert sum(loss["size_bytes"] for loss in report["losses"]) == report["session"]["lost_bytes"]
    assert [one["state"] for one in mesh.sessions() if one["session_id"] == session] == ["DECODED"]
    return report


def recorded_s(report: dict[str, Any]) -> float:
    return float(report["session"]["end_ns"] - report["session"]["start_ns"]) / 1e9


def assert_did_its_work(report: dict[str, Any]) -> None:
    """The decoded calls are those of the program: 200 steps in a piece of work."""
    functions = {row["name"]: row["calls"] for row in report["functions"]}
    steps, pieces = functions["step_of_work"], functions["piece_of_work"]
    assert pieces > 10
    # Of each thread the first and the last piece may be cut.
    assert 200 * (pieces - 4) <= steps <= 200 * (pieces + 4)


@contextlib.contextmanager
def caught_decoding(mesh: WholeMesh, pid: int) -> Iterator[Process]:
    """A trace whose decode is going on, longer ones until one is caught; whatever the block does, it is one session."""
    for period in ("1s", "4s", "16s", "50s"):
        known = len(mesh.sessions())
        with mesh.started("trace", "--pid", str(pid), "--for", period, "--json") as trace:
            begun_s = decoded_for_s(mesh) + 0.1
            while trace.poll() is None and decoded_for_s(mesh) < begun_s:
                time.sleep(0.01)
            if trace.poll() is None:
                yield trace
                assert len(mesh.sessions()) == known + 1
                return
            mesh.finished(trace)
    pytest.fail("every decode was over before it was seen")


def decoded_for_s(mesh: WholeMesh) -> float:
    """The seconds of CPU that the decoder's workers spent until now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return sum(worker.cpu_times().user for worker in mesh.service("decoder").children(recursive=True))
    return 0.0


def waiting_session(mesh: WholeMesh, trace: Process) -> dict[str, Any]:
    """The session that a trace began and that cannot be stored now, when there is one."""
    found: list[dict[str, Any]] = []

    def waiting() -> bool:
        if trace.poll() is not None:
            pytest.fail(f"the trace ended: {trace.communicate()}")
        found[:] = [one for one in mesh.sessions() if one["error_message"]]
        return bool(found)

    await_true(waiting, PATIENCE_S, "a session that says why it is not stored")
    (session,) = found
    return session
