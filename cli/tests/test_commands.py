"""Each command on a real mesh with a real program, as its user types it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import tarfile
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from .conftest import BUSY, Mesh, permille_alone, recorded, running


def test_run_becomes_the_program(mesh: Mesh, busy: subprocess.Popen[str], busy_program: Path) -> None:
    process = psutil.Process(busy.pid)
    assert process.name() == busy_program.name
    assert process.children() == []
    recordable = {one["pid"]: one["name"] for one in mesh.json("doctor")["recordable"]}
    assert recordable[busy.pid] == busy_program.name


def test_run_keeps_output_arguments_and_exit_code(mesh: Mesh) -> None:
    done = mesh.run("run", "--", "sh", "-c", 'echo "$0 $1"; exit 7', "a", "--json", code=7)
    assert done.stdout == "a --json\n"
    assert "next: permille trace --pid" in done.stderr


def test_what_starts_is_told_on_one_line_that_steers_no_terminal(mesh: Mesh) -> None:
    done = mesh.run("run", "--", "sh", "-c", "exit 0", "a\n\x1b[31mb")
    (line,) = done.stderr.splitlines()
    assert r"a\x0a\x1b[31mb" in line and " starts as pid " in line


def test_run_starts_scripts_through_their_interpreter(mesh: Mesh, tmp_path: Path) -> None:
    file = tmp_path / "hello"
    file.write_text('#!/usr/bin/env sh\necho "hello $1"\n')
    file.chmod(0o755)
    assert mesh.run("run", "-q", "--", file, "world").stdout == "hello world\n"


def test_what_a_script_executes_can_be_recorded_where_it_is_followed(
    mesh: Mesh, busy_program: Path, tmp_path: Path
) -> None:
    server = tmp_path / "the,server"
    server.symlink_to(busy_program)
    script = tmp_path / "start"
    script.write_text(f"#!/bin/sh\nexec '{server}'\n")
    script.chmod(0o755)
    with running(mesh, script) as left:
        refused = mesh.run("trace", "--pid", str(left.pid), "--for", "10ms", code=4)
        assert "run --follow" in refused.stderr
    with running(mesh, script, options=["--follow"]) as followed:
        assert mesh.json("trace", "--name", "the,server", "--for", "10ms")["sessions"]
        assert psutil.Process(followed.pid).name() == "the,server"


def test_trace_tells_the_cost_first_then_each_stage_then_what_to_type_next(
    mesh: Mesh, busy: subprocess.Popen[str]
) -> None:
    done = mesh.run("trace", "--pid", str(busy.pid), "--for", "1s", "--no-cyc", "--psb-period", "4KiB")
    told = done.stderr.splitlines()
    assert "of trace, about" in told[0]
    stages = [line.split()[0] for line in told[1:]]
    assert stages == [stage for stage in ("planning", "recording", "storing", "decoding") if stage in stages]
    assert "recording" in stages
    session = done.stdout.splitlines()[0].removeprefix("session ")
    assert session.startswith("nodes/")
    assert done.stdout.splitlines()[1] == f"next: permille report {session.rpartition('/')[2]}"


def test_on_a_terminal_trace_shows_how_full_the_buffers_are(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    ours, theirs = pty.openpty()
    trace = mesh.popen("trace", "--pid", str(busy.pid), "--for", "60s", stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    told, wanted = b"", re.compile(rb"recording [^\r]* in \d+ buffers?, (thread \d+ is \d+ % full|\d+ full)")
    try:
        while not wanted.search(told):
            told += os.read(ours, 4096)
        # The recording ends, and what was recorded is kept.
        trace.send_signal(signal.SIGINT)
        while os.read(ours, 4096):
            pass
    except OSError:
        # The terminal has no other side any more.
        assert wanted.search(told), told
    finally:
        os.close(ours)
        assert trace.wait() != 0


def test_a_dry_run_records_nothing(mesh: Mesh, busy_program: Path, tmp_path: Path) -> None:
    before = len(mesh.json("sessions")["sessions"])
    never_recorded = shutil.copy(busy_program, tmp_path / "never-recorded")
    with running(mesh, never_recorded) as process:
        plan = mesh.json("trace", "--pid", str(process.pid), "--for", "30ms", "--dry-run")["plan"]
    assert plan["nodes"][0]["pids"] == [process.pid]
    assert plan["nodes"][0]["period_ms"] == 30
    assert plan["expected_bytes"] > 0
    assert len(mesh.json("sessions")["sessions"]) == before


def test_a_dry_run_says_which_buffer_is_how_large_and_why(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    arguments = ("trace", "--pid", str(busy.pid), "--for", "30ms", "--buffer", "8MiB", "--dry-run")
    (memory,) = mesh.json(*arguments)["memory"]
    assert (memory["unit"], memory["budget_bytes"]) == ("thread", 8 << 20)
    planned = {buffer["unit"]: buffer["size_bytes"] for buffer in memory["buffers"]}
    assert busy.pid in planned and all("of a core" in buffer["reason"] for buffer in memory["buffers"])
    reserved = memory["reserve"] * memory["reserve_buffer_bytes"]
    assert reserved > 0 and sum(planned.values()) + reserved <= 8 << 20
    told = mesh.run(*arguments).stdout
    assert "memory by thread, 8.0 MiB at most" in told and f"thread {busy.pid}: " in told


def test_a_repeated_request_id_finds_the_same_recording(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    arguments = ("trace", "--pid", str(busy.pid), "--for", "20ms", "--request-id", "once-only")
    assert mesh.json(*arguments)["sessions"] == mesh.json(*arguments)["sessions"]


def test_a_request_id_can_be_repeated_beside_the_first_and_when_its_target_has_ended(
    mesh: Mesh, busy_program: Path
) -> None:
    with running(mesh, busy_program) as process:
        arguments = ("trace", "--pid", str(process.pid), "--for", "2s", "--request-id", "twice")
        with mesh.popen(*arguments, "--json", stdout=subprocess.PIPE) as first:
            told = mesh.json(*arguments)
            assert first.stdout is not None
            assert json.load(first.stdout)["sessions"] == told["sessions"] != []
    assert mesh.json(*arguments)["sessions"] == told["sessions"]


def test_processes_are_found_by_name(mesh: Mesh, busy: subprocess.Popen[str], busy_program: Path) -> None:
    plan = mesh.json("trace", "--name", busy_program.name, "--dry-run")["plan"]
    assert plan["nodes"][0]["pids"] == [busy.pid]


def test_sessions_are_listed_the_newest_first(mesh: Mesh, session: str) -> None:
    listed = mesh.json("sessions", "--limit", "0")["sessions"]
    mine = next(one for one in listed if one["name"] == session)
    assert (mine["state"], mine["target"], mine["period_ms"]) == ("DECODED", "permille-busy", 50)
    starts = [one["start_ns"] for one in listed]
    assert starts == sorted(starts, reverse=True)
    assert mine["session_id"] in mesh.run("sessions").stdout
    assert mesh.json("sessions", "--target", "nobody")["sessions"] == []
    assert "no sessions of nobody" in mesh.run("sessions", "--target", "nobody").stderr


def test_how_long_a_recording_is_kept_is_said_and_shown(mesh: Mesh, busy: subprocess.Popen[str], session: str) -> None:
    (kept,) = mesh.json("trace", "--pid", str(busy.pid), "--for", "20ms", "--keep", "7d")["sessions"]
    listed = {one["name"]: one for one in mesh.json("sessions", "--limit", "0")["sessions"]}
    assert (listed[kept]["retention_s"], listed[session]["retention_s"]) == (604_800, 0)
    assert listed[kept]["kept_until_ns"] == listed[kept]["end_ns"] + 604_800 * 10**9
    assert listed[session]["kept_until_ns"] == 0
    assert "KEPT UNTIL" in mesh.run("sessions").stdout


def test_the_report_says_what_the_program_did(mesh: Mesh, session: str) -> None:
    report = mesh.json("report", session)
    functions = {row["name"]: row for row in report["functions"]}
    inner, outer = functions["inner_work"], functions["outer_work"]
    # outer_work calls inner_work ten times; the first and the last of each may be cut.
    assert abs(inner["calls"] - 10 * outer["calls"]) <= 20
    assert inner["self_instructions"] == inner["total_instructions"] > 0
    assert outer["total_instructions"] > outer["self_instructions"]
    assert report["session"]["backend"] == "vpt"
    assert report["session"]["instructions"] == sum(row["self_instructions"] for row in report["functions"])


@pytest.mark.parametrize("named", ["latest", "the id", "the beginning of the id", "nothing"])
def test_a_session_may_be_named_in_several_ways(
    mesh: Mesh, busy: subprocess.Popen[str], session: str, named: str
) -> None:
    if named in ("latest", "nothing"):
        # The latest one may be another test's, so short that its program got no processor.
        recorded(mesh, busy.pid, "inner_work")
    identity = session.rpartition("/")[2]
    word = {"latest": ["latest"], "the id": [identity], "the beginning of the id": [identity[:-2]], "nothing": []}[
        named
    ]
    text = mesh.run("report", *word, "--top", "3").stdout
    assert "inner_work" in text
    assert "back end  vpt" in text
    assert "Losses" in text


def test_the_page_is_one_file_with_all_functions(mesh: Mesh, session: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    told = mesh.json("report", session, "--html", file)
    assert told["size_bytes"] == file.stat().st_size
    assert '"name":"inner_work"' in file.read_text()


def test_queries_read_the_tables(mesh: Mesh, session: str) -> None:
    sql = f"SELECT name, calls FROM functions WHERE session_id = '{session.rpartition('/')[2]}' AND name = 'inner_work'"
    answer = mesh.json("query", sql)
    assert answer["columns"] == ["name", "calls"]
    assert answer["rows"][0]["calls"] > 0
    assert not answer["truncated"]
    assert mesh.json("query", "SELECT * FROM range(5)", "--max-rows", "3")["truncated"]
    assert "there are more than 3 rows" in mesh.run("query", "SELECT * FROM range(5)", "--max-rows", "3").stderr


@pytest.mark.parametrize("sql", ["SELEC 1", "DELETE FROM sessions", "SELECT * FROM read_csv('/etc/passwd')"])
def test_a_wrong_query_is_a_usage_error(mesh: Mesh, sql: str) -> None:
    failed = mesh.run("query", sql, "--json", code=2)
    assert json.loads(failed.stderr)["error"]["reason"] == "BAD_QUERY"


@pytest.mark.parametrize("form", ["perfetto", "speedscope", "folded", "pprof", "csv", "parquet", "json"])
def test_every_format_is_written_whole(mesh: Mesh, session: str, form: str, tmp_path: Path) -> None:
    file = tmp_path / f"session.{form}"
    # Those of inner_work are the shortest: all but one.
    most = mesh.json("report", session)["session"]["calls"] - 1
    if form in ("perfetto", "speedscope", "folded", "pprof"):
        limit = ["--max-calls", str(most)]
    else:
        limit = ["--table", "functions"]
    told = mesh.json("export", session, "--format", form, "-o", file, *limit)
    content = file.read_bytes()
    assert told["size_bytes"] == len(content)
    if form == "pprof":
        content = gzip.decompress(content)
    if form == "parquet":
        assert "inner_work" in pq.read_table(file)["name"].to_pylist()
    else:
        assert b"inner_work" in content
    if form == "speedscope":
        assert told["omitted_calls"] > 0


def test_an_export_may_go_on_through_a_pipe(mesh: Mesh, session: str) -> None:
    text = mesh.run("export", session, "--format", "csv", "--table", "functions", "-o", "-").stdout
    assert "inner_work" in {row["name"] for row in csv.DictReader(io.StringIO(text))}


def test_a_reader_that_has_seen_enough_is_no_error(mesh: Mesh, session: str) -> None:
    process = mesh.popen(
        "export", session, "--format", "csv", "-o", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions",),
        ("report", "SESSION"),
        ("diff", "SESSION", "SESSION"),
        ("query", "SELECT name FROM functions"),
        ("coverage", "show", "SESSION"),
        ("coverage", "plan", "--name", "permille-busy"),
        ("coverage", "list"),
        ("coverage", "list", "--json"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_whatever_is_printed_nobody_has_to_read_it(mesh: Mesh, session: str, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [session if word == "SESSION" else word for word in arguments]
    with mesh.popen(*words, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert process.wait(60) == 0


def test_an_export_that_cannot_be_written_leaves_nothing(mesh: Mesh, session: str, tmp_path: Path) -> None:
    failed = mesh.run("export", session, "--format", "folded", "-o", tmp_path / "no" / "file", code=3)
    assert "mkdir -p" in failed.stderr
    assert mesh.run("export", session, "--format", "csv", "--table", "nonsense", "-o", tmp_path / "x", code=2)
    assert list(tmp_path.iterdir()) == []


def test_a_page_goes_to_standard_output_as_exports_do(mesh: Mesh, session: str) -> None:
    page = mesh.run("report", session, "--html", "-").stdout
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert not Path("-").exists()


def test_deleting_asks_first_and_deletes_for_good(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    name = mesh.json("trace", "--pid", str(busy.pid), "--for", "10ms")["sessions"][0]
    refused = mesh.run("delete", name, code=2)
    assert "--yes" in refused.stderr
    freed = mesh.json("delete", name, "--yes")
    assert freed[0]["freed_bytes"] > 0
    assert name not in {one["name"] for one in mesh.json("sessions", "--limit", "0")["sessions"]}
    assert mesh.run("report", name, code=3).stderr.count("no session")
    identity = name.rpartition("/")[2]
    assert [file for file in mesh.state.rglob("*") if identity in file.name and "_delta_log" not in str(file)] == []


def test_a_session_that_the_store_alone_has_is_deleted_by_its_name(mesh: Mesh, session: str) -> None:
    name = f"{session.rpartition('/')[0]}/lost"
    file = mesh.state / "store/raw/lost/segment-0.pt.zst"
    file.parent.mkdir()
    file.write_bytes(bytes(7))
    assert mesh.json("delete", name, "--yes")[0]["freed_bytes"] == 7
    assert not file.exists()
    assert "no session" in mesh.run("delete", name, "--yes", code=3).stderr


def test_binaries_are_uploaded_once(mesh: Mesh, busy_program: Path, tmp_path: Path) -> None:
    debug = tmp_path / "busy.debug"
    subprocess.run(["objcopy", "--only-keep-debug", busy_program, debug], check=True)
    first = mesh.json("upload-binary", busy_program, "--debug", debug)
    assert [one["name"].startswith("binaries/") for one in first] == [True, True]
    again = mesh.json("upload-binary", busy_program, "--debug", debug)
    assert [(one["existed"], one["guessed"]) for one in again] == [(True, False)] * 2
    # It is none of another program's.
    of_another = mesh.run("upload-binary", "/bin/sh", "--debug", debug, code=2)
    assert first[1]["build_id"] in of_another.stderr and "readelf -n" in of_another.stderr
    refused = mesh.run("upload-binary", "/etc/passwd", code=2)
    assert "/etc/passwd" in refused.stderr
    assert mesh.run("upload-binary", tmp_path / "none", code=3)


def test_a_binary_with_more_takes_the_place_of_one_with_less_and_one_without_contents_none(
    mesh: Mesh, tmp_path: Path
) -> None:
    program, stripped, debug, source = (tmp_path / name for name in ("program", "stripped", "debug", "busy.c"))
    source.write_text(BUSY)
    subprocess.run(["cc", "-g", f"-Wl,--build-id=0x{os.urandom(20).hex()}", "-o", program, source], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", "-o", stripped, program], check=True)
    assert ".debug (" in mesh.run("upload-binary", debug).stdout
    mesh.run("upload-binary", stripped)
    assert "in the place of one that had less" in mesh.run("upload-binary", program).stdout
    assert "was there already" in mesh.run("upload-binary", stripped).stdout
    stripped.write_bytes(program.read_bytes()[:1000])
    refused = mesh.run("upload-binary", stripped, code=2).stderr
    assert "cut off" in refused and "copy it again" in refused


def test_names_that_are_given_later_are_there_when_it_is_decoded_again(mesh: Mesh, tmp_path: Path) -> None:
    program, debug, source = tmp_path / "stripped", tmp_path / "stripped.debug", tmp_path / "busy.c"
    source.write_text(BUSY)
    # Nobody has stored it with its symbols.
    subprocess.run(["cc", "-O1", f"-Wl,--build-id=0x{os.urandom(20).hex()}", "-o", program, source], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", program], check=True)
    with running(mesh, program) as process:
        name = recorded(mesh, process.pid)

    def functions(*options: str) -> set[str]:
        return {row["name"] for row in mesh.json("report", name, "--top", "0", *options)["functions"]}

    assert "inner_work" not in functions()
    assert "--again" in mesh.run("report", name).stdout
    mesh.run("upload-binary", program, "--debug", debug)
    assert "inner_work" in functions("--again")
    assert "inner_work" in functions()


def test_tables_are_made_anew_as_often_as_they_are_lost(own_mesh: Mesh, busy_program: Path) -> None:
    own_mesh.start()
    with running(own_mesh, busy_program) as process:
        name = recorded(own_mesh, process.pid)
    known = own_mesh.json("report", name)["functions"]
    assert known
    for _ in range(2):
        shutil.rmtree(own_mesh.state / "store/tables")
        assert own_mesh.json("report", name)["functions"] == known


def test_the_support_bundle_has_logs_and_state_but_no_secrets(mesh: Mesh, session: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    mesh.environment["PERMILLE_TEST_PASSWORD"] = "do-not-tell"
    try:
        told = mesh.json("support-bundle", "-o", file)
    finally:
        del mesh.environment["PERMILLE_TEST_PASSWORD"]
    with tarfile.open(file) as archive:
        files = {
            name.removeprefix("permille-support/"): (archive.extractfile(name) or io.BytesIO()).read()
            for name in archive.getnames()
        }
    assert sorted(files) == told["files"]
    assert {"doctor.json", "versions.json", "config.json", "sessions.json", "logs/decoder.log", "logs/etcd.log"} <= set(
        files
    )
    assert any(name.startswith("metrics/controller-") and b"permille" in text for name, text in files.items())
    assert session in files["sessions.json"].decode()
    assert b"do-not-tell" not in b"".join(files.values())
    assert json.loads(files["config.json"])["environment"]["PERMILLE_TEST_PASSWORD"] == "(removed)"


def test_the_doctor_knows_what_the_controller_found(mesh: Mesh) -> None:
    found = mesh.json("doctor")
    checks = {check["name"]: check for check in found["checks"]}
    assert found["can_record"]
    assert {"intel_pt", "kmod", "bpf", "qemu", "vpt", "etcd", "store"} <= set(checks)
    assert all(check["fix"] for check in checks.values() if not check["available"])
    text = mesh.run("doctor").stdout
    assert "This machine can record." in text


def test_certificates_for_services_and_people(tmp_path: Path) -> None:
    folder = str(tmp_path / "certs")
    assert permille_alone("certs", "user", "ada", "--role", "viewer", "-d", folder).returncode == 3
    assert permille_alone("certs", "authority", "-d", folder).returncode == 0
    service = permille_alone("certs", "service", "n1", "--host", "n1.example.org", "-d", folder, "--json")
    assert json.loads(service.stdout)["certificate"].endswith("n1.crt")
    user = permille_alone("certs", "user", "ada", "--role", "operator", "--role", "external", "-d", folder)
    assert "PERMILLE_TLS_CERT" in user.stderr
    again = permille_alone("certs", "user", "ada", "--role", "viewer", "-d", folder)
    assert (again.returncode, "exists" in again.stderr) == (4, True)
    assert permille_alone("certs", "user", "bob", "--role", "king", "-d", folder).returncode == 2


def test_one_mesh_records_several_processes_at_once(mesh: Mesh, busy_program: Path) -> None:
    with running(mesh, busy_program) as first, running(mesh, busy_program) as second:
        pids = ["--pid", str(first.pid), "--pid", str(second.pid)]
        # On a busy machine one may not run for a while.
        for _ in range(20):
            name = mesh.json("trace", *pids, "--for", "200ms", "--buffer", "4MiB")["sessions"][0]
            ran = {row["pid"] for row in mesh.json("report", name)["segments"]}
            if len(ran) > 1:
                break
    assert ran == {first.pid, second.pid}
