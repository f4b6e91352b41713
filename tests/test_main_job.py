"""The main job as a user does it: a real redis-server under real load, traced, decoded, shown, exported, deleted."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from permille.api.decoder.v1 import profile_pb2

from tests.redis_load import load_on_redis, redis_commands, redis_server
from tests.whole_mesh import TABLES, WholeMesh


@dataclass
class Traced:
    """One trace of a redis-server under load. `commands`: what redis counted from before the trace until after it."""

    mesh: WholeMesh
    server: psutil.Process
    session: str
    commands: int

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = self.mesh.json("report", self.session, "--top", "0")
        return report

    def export(self, form: str, *arguments: str) -> bytes:
        file = self.mesh.state / f"exported.{form}"
        told = self.mesh.json("export", self.session, "--format", form, "-o", str(file), *arguments)
        data = file.read_bytes()
        assert told["size_bytes"] == len(data) > 0
        return data


@pytest.fixture(scope="module")
def traced(mesh: WholeMesh) -> Iterator[Traced]:
    with redis_server(mesh) as (server, port):
        with load_on_redis(port):
            before = redis_commands(port)
            session = mesh.trace_of_work("--pid", str(server.pid), function="processCommand", calls=100, period="500ms")
            commands = redis_commands(port) - before
        yield Traced(mesh, psutil.Process(server.pid), session, commands)


def test_the_report_shows_what_redis_did(traced: Traced) -> None:
    report = traced.report()
    session = report["session"]
    assert (session["target"], session["stop_reason"], session["period_ms"]) == ("redis-server", "PERIOD", 500)
    functions = {row["name"]: row for row in report["functions"]}
    assert len(report["functions"]) == report["functions_total"] > 100
    processed = functions["processCommand"]["calls"]
    assert 0 < processed <= traced.commands
    # Every command is looked up, called, and is the SET of the load but for those that asked redis for its counts.
    for name in ("call", "setCommand", "setGenericCommand"):
        assert abs(functions[name]["calls"] - processed) <= 2, name
    assert functions["processCommand"]["module"].startswith("/usr/bin/redis-")
    for row in report["functions"]:
        assert 0 < row["self_instructions"] <= row["total_instructions"], row
    assert sum(row["self_instructions"] for row in report["functions"]) == session["instructions"] > 1_000_000


def test_threads_and_losses_add_up_to_the_session(traced: Traced) -> None:
    report = traced.report()
    session, segments, losses = report["session"], report["segments"], report["losses"]
    assert {segment["pid"] for segment in segments} == {traced.server.pid}
    assert {"redis-server", "io_thd_1"} <= {segment["thread"] for segment in segments}
    for key in ("instructions", "lost_bytes", "stored_bytes"):
        assert sum(segment[key] for segment in segments) == session[key], key
    assert sum(segment["size_bytes"] for segment in segments) == session["raw_bytes"]
    assert sum(loss["size_bytes"] for loss in losses) == session["lost_bytes"]
    assert all(loss["reason"] and loss["knob"] for loss in losses)
    assert session["lost_bytes"] < 0.05 * session["raw_bytes"]


def test_the_report_as_text_and_as_one_page(traced: Traced, tmp_path: Path) -> None:
    text = traced.mesh.command("report", traced.session).stdout
    assert traced.session in text and traced.report()["functions"][0]["name"] in text and "executed" in text
    page = tmp_path / "report.html"
    traced.mesh.command("report", traced.session, "--html", str(page))
    html = page.read_text()
    assert html.lstrip().lower().startswith("<!doctype html") and "processCommand" in html
    assert traced.session in html


def test_questions_in_sql(traced: Traced) -> None:
    mesh, session = traced.mesh, traced.session
    (row,) = mesh.rows(
        "SELECT count(*) AS calls, bool_and(c.start_ns >= s.start_ns AND c.end_ns <= s.end_ns) AS inside,"
        " bool_and(c.end_ns >= c.start_ns) AS forward FROM calls c JOIN sessions s ON c.session_id = s.session_id"
        f" WHERE s.session_id = '{session}' AND c.name = 'processCommand'"
    )
    functions = {row["name"]: row for row in traced.report()["functions"]}
    assert row == {"calls": functions["processCommand"]["calls"], "inside": True, "forward": True}
    callers = mesh.rows(
        "SELECT DISTINCT p.name AS caller FROM calls c JOIN calls p"
        " ON p.session_id = c.session_id AND p.segment = c.segment AND p.call = c.parent"
        f" WHERE c.session_id = '{session}' AND c.name = 'setGenericCommand'"
    )
    assert callers == [{"caller": "setCommand"}]
    # Calls through the procedure linkage table are calls of what it leads to.
    stubs = f"SELECT name FROM calls WHERE session_id = '{session}' AND name LIKE '%@plt' AND NOT begin_truncated"
    assert mesh.rows(stubs) == []
    refused = mesh.refusal("query", "SELECT * FROM read_text('/etc/passwd')", code=2)
    assert refused["reason"] == "BAD_QUERY" and "/etc/passwd" in refused["message"]


def test_every_export_is_what_its_readers_expect(traced: Traced) -> None:
    perfetto = perfetto_trace_pb2.Trace.FromString(traced.export("perfetto"))
    begun = sum(packet.HasField("track_event") and packet.track_event.type == 1 for packet in perfetto.packet)
    assert begun > 1000
    speedscope = json.loads(traced.export("speedscope"))
    assert len(speedscope["profiles"]) >= 2
    assert "processCommand" in {frame["name"] for frame in speedscope["shared"]["frames"]}
    folded = traced.export("folded").decode().splitlines()
    assert any(";processCommand;call;setCommand" in line for line in folded)
    assert all(line.rpartition(" ")[2].isdigit() for line in folded)
    profile = profile_pb2.Profile.FromString(gzip.decompress(traced.export("pprof")))
    names = {profile.string_table[function.name] for function in profile.function}
    assert "processCommand" in names and len(profile.sample) > 100


def test_every_table_and_every_tabular_format(mesh: WholeMesh, busy: Path) -> None:
    with mesh.running(str(busy), "paced") as target:
        session = mesh.trace_of_work("--pid", str(target.pid), function="piece_of_work", calls=1)
        small = Traced(mesh, psutil.Process(target.pid), session, 0)
    counts = mesh.counts(small.session)
    for table in TABLES:
        assert pq.read_table(io.BytesIO(small.export("parquet", "--table", table))).num_rows == counts[table], table
    limited = ("--table", "functions")
    rows = list(csv.DictReader(io.StringIO(small.export("csv", *limited).decode())))
    objects = json.loads(small.export("json", *limited))
    parquet = pq.read_table(io.BytesIO(small.export("parquet", *limited)))
    assert len(rows) == len(objects) == counts["functions"] > 0
    assert set(rows[0]) == set(objects[0]) == set(parquet.column_names)


def test_a_process_is_found_by_its_name(traced: Traced, busy: Path) -> None:
    with traced.mesh.running(str(busy), "paced"):
        session = traced.mesh.trace_of_work("--name", "busy", function="piece_of_work", calls=10)
    report = traced.mesh.json("report", session)
    assert report["session"]["target"] == "busy"
    functions = {row["name"]: row for row in report["functions"]}
    # The program's source: 200 steps in a piece.
    steps, pieces = functions["step_of_work"]["calls"], functions["piece_of_work"]["calls"]
    assert pieces > 1 and 200 * (pieces - 2) <= steps <= 200 * pieces
    assert functions["step_of_work"]["file"].endswith("busy.c") and functions["step_of_work"]["line"] > 0


def test_an_estimate_records_nothing(traced: Traced) -> None:
    before = traced.mesh.sessions()
    plan = traced.mesh.json("trace", "--pid", str(traced.server.pid), "--for", "2s", "--dry-run")["plan"]
    assert plan["expected_bytes"] > 0 and plan["expected_decode_ms"] > 0
    assert traced.mesh.sessions() == before


def test_a_second_up_is_refused_and_the_first_goes_on(traced: Traced) -> None:
    mesh = traced.mesh
    refused = mesh.refusal("up", code=4)
    assert (refused["reason"], refused["metadata"]["pid"]) == ("ALREADY_UP", str(mesh.up.pid))
    assert str(mesh.up.pid) in refused["help"]
    assert mesh.up.poll() is None
    assert mesh.sessions()


def test_what_was_recorded_is_there_after_a_restart(traced: Traced) -> None:
    mesh = traced.mesh
    before, report = mesh.sessions(), traced.report()
    mesh.stop()
    away = mesh.refusal("sessions", code=6)
    assert "permille up" in away["help"]
    mesh.start()
    assert mesh.sessions() == before
    assert traced.report() == report
    # The program did not notice, and the new controller knows it.
    assert mesh.trace(traced.server.pid, "50ms")


def test_what_is_deleted_is_gone_and_its_room_is_free(traced: Traced, busy: Path) -> None:
    mesh = traced.mesh
    with mesh.running(str(busy), "paced") as target:
        unwanted = mesh.trace_of_work("--pid", str(target.pid), function="piece_of_work", calls=10)
    kept, rows, files = mesh.counts(traced.session), mesh.counts(unwanted), files_of(mesh, unwanted)
    assert files and min(rows[table] for table in ("sessions", "segments", "functions", "calls", "edges")) > 0
    mesh.command("delete", unwanted, "--yes")
    assert not any(file.exists() for file in files)
    assert files_of(mesh, unwanted) == []
    assert set(mesh.counts(unwanted).values()) == {0}
    assert unwanted not in {one["session_id"] for one in mesh.sessions()}
    assert mesh.refusal("report", unwanted, code=3)["reason"] == "SESSION_NOT_FOUND"
    assert mesh.counts(traced.session) == kept


def files_of(mesh: WholeMesh, session: str) -> list[Path]:
    """Everything in the store that is of one session alone."""
    return [path for path in (mesh.state / "store").rglob("*") if path.is_file() and session in str(path)]
