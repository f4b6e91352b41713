"""`permille coverage` and `permille diff` on a real mesh with real programs."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from .conftest import Mesh, await_true, recorded, running


def test_an_operation_by_rounds_ends_when_no_more_is_wanted_and_its_sessions_are_shown_together(
    mesh: Mesh, busy: subprocess.Popen[str], busy_program: Path
) -> None:
    name = busy_program.name
    planned = mesh.json("coverage", "plan", "--name", name, "--rounds", "3")
    assert planned["choices"][0]["chosen"]
    assert planned["period_terms"][0][0]["name"] == "base"

    recorded(mesh, busy.pid, "inner_work")
    # Wants more than there can be: one round is enough. On a busy machine the program may not run in it.
    for _ in range(20):
        told = mesh.json("coverage", "start", "--name", name, "--for", "200ms", "--rounds", "3", "--min-gain", "1e12")
        assert len(told["sessions"]) == 1
        if told["rounds"][0]["functions"]:
            break
    assert (told["rounds"][0]["next"], told["rounds"][0]["functions"] > 0) == ("ACTION_STOP", True)
    shown = mesh.json("coverage", "show", told["operation"]["name"])
    assert [replica["session"] for replica in shown["replicas"]] == told["sessions"]
    everything = mesh.json("coverage", "show", "--name", name)
    assert {"inner_work", "outer_work"} <= {row["name"] for row in everything["functions"]}
    assert [edge["callee"] for edge in everything["edges"] if edge["caller"] == "outer_work"] == ["inner_work"]
    paths = everything["paths"]
    inner = next(path for path in paths if path["name"] == "inner_work" and path["caller"])
    assert (paths[inner["caller"] - 1]["name"], inner["calls"] > 1, inner["share"] <= 1) == ("outer_work", True, True)
    text = mesh.run("coverage", "show", "--name", name).stdout
    assert "Functions of all sessions together" in text
    assert "outer_work > inner_work" in text
    assert "Call paths of all sessions together" in text
    assert mesh.json("coverage", "show", "--name", name, "--paths", "0")["paths"] == []


def test_a_plan_tells_how_many_blocks_were_seen_and_the_tables_tell_of_which_functions(
    mesh: Mesh, busy: subprocess.Popen[str], busy_program: Path
) -> None:
    name = busy_program.name
    recorded(mesh, busy.pid, "inner_work")
    mesh.json("coverage", "start", "--pid", str(busy.pid), "--for", "50ms")
    terms = mesh.json("coverage", "plan", "--name", name)["period_terms"][0]
    (told,) = [term["detail"] for term in terms if term["name"] == "complexity"]
    newest = f"SELECT session_id FROM sessions WHERE target = '{name}' ORDER BY start_ns DESC LIMIT 20"
    sql = f"SELECT name, max(blocks) AS most FROM functions WHERE session_id IN ({newest}) GROUP BY name"
    most = {row["name"]: row["most"] for row in mesh.json("query", sql)["rows"]}
    # Around a call at least: the function's begin and where the call returned to.
    assert most["outer_work"] >= 2 and most["inner_work"] >= 1
    assert int(told.removesuffix(" blocks seen")) >= sum(most.values())


def test_an_operation_is_begun_listed_shown_waited_for_and_cancelled(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    wish = ("--pid", str(busy.pid), "--purpose", "anomaly", "--keep", "12h")
    begun = mesh.json("coverage", "start", *wish, "--for", "50s", "--no-wait", "--request-id", "looked-at")["operation"]
    name = begun["name"]
    # Repeated while its own recording is what keeps another one from beginning.
    await_true(lambda: "RECORDING" in mesh.run("coverage", "get", name, "--json").stdout, 120, "the recording")
    again = mesh.json("coverage", "start", *wish, "--for", "50s", "--no-wait", "--request-id", "looked-at")["operation"]
    assert again["name"] == name
    refused = mesh.run("coverage", "start", *wish, "--for", "50s", "--no-wait", "--request-id", "another", code=None)
    assert refused.returncode and "is being recorded" in refused.stderr
    newest = mesh.json("coverage", "list", "--limit", "1")["operations"][0]
    assert (newest["name"], newest["target"], newest["purpose"]) == (name, f"pid {busy.pid}", "anomaly")
    assert (newest["state"], newest["retention_s"]) == ("RUNNING", 12 * 3600)
    told = mesh.run("coverage", "get", name).stdout
    assert f"pid {busy.pid}" in told and "kept for 12 h after its end" in told
    with mesh.popen("coverage", "wait", name, stderr=subprocess.PIPE) as waiting:
        assert mesh.json("coverage", "cancel", name)["operation"]["name"] == name
        _, error = waiting.communicate(timeout=120)
    assert (waiting.returncode, "was cancelled" in error) == (130, True)
    # By its id alone, too.
    ended = mesh.json("coverage", "get", name.removeprefix("operations/"))["operation"]
    assert (ended["state"], ended["error"]["reason"]) == ("CANCELLED", "OPERATION_CANCELLED")
    assert "cancelled" in mesh.run("coverage", "list", "--limit", "3").stdout

    done = mesh.json("coverage", "start", *wish, "--for", "50ms", "--no-wait")["operation"]["name"]
    waited = mesh.json("coverage", "wait", done)
    assert mesh.json("coverage", "get", done)["sessions"] == waited["sessions"] != []
    assert waited["sessions"][0] in mesh.run("coverage", "get", done).stdout
    assert "no operation" in mesh.run("coverage", "get", "operations/000000000000-00000000", code=3).stderr


def test_ctrl_c_stops_waiting_and_the_operation_goes_on(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    begun = mesh.json("coverage", "start", "--pid", str(busy.pid), "--for", "50s", "--no-wait")["operation"]["name"]
    with mesh.popen("coverage", "wait", begun, stderr=subprocess.PIPE) as waiting:
        assert waiting.stderr is not None
        # Its first word of how far the operation is: from now on it heeds Ctrl-C.
        assert waiting.stderr.read(1)
        waiting.send_signal(signal.SIGINT)
        _, error = waiting.communicate(timeout=120)
    assert (waiting.returncode, "goes on" in error) == (130, True)
    assert mesh.json("coverage", "get", begun)["operation"]["state"] == "RUNNING"
    mesh.run("coverage", "cancel", begun)
    mesh.run("coverage", "wait", begun, code=130)


def test_what_another_program_does_is_told_apart_and_the_same_is_alike(
    mesh: Mesh, busy: subprocess.Popen[str], tmp_path: Path
) -> None:
    source = tmp_path / "other.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\nstatic volatile unsigned long sum;\n"
        "__attribute__((noinline)) void strange_work(void) { for (int i = 0; i < 200; i++) sum += i; }\n"
        'int main(void) { puts("begun"); fflush(stdout); for (;;) { strange_work(); usleep(50); } }\n'
    )
    subprocess.run(["cc", "-O1", "-o", tmp_path / "other", source], check=True)
    session = recorded(mesh, busy.pid, "inner_work")
    with running(mesh, tmp_path / "other") as process:
        other = recorded(mesh, process.pid, "strange_work")
    found = mesh.json("diff", session, other, "--top", "50")
    only = {row["name"]: row["only_in"] for row in found["functions"]}
    assert (only["inner_work"], only["strange_work"]) == ("a", "b")
    assert {row["only_in"] for row in found["paths"] if row["name"] == "strange_work"} == {"b"}
    assert "only B" in mesh.run("diff", session, other).stdout
    same = mesh.json("diff", session, session)
    assert (same["similarity"], same["functions"], same["calls"], same["paths"]) == (1.0, [], [], [])


def test_a_recording_in_which_nothing_ran_is_said_to_have_no_calls(
    mesh: Mesh, busy: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "idle.c").write_text(
        '#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts("begun"); fflush(stdout); for (;;) pause(); }\n'
    )
    subprocess.run(["cc", "-O1", "-o", tmp_path / "idle", tmp_path / "idle.c"], check=True)
    session = recorded(mesh, busy.pid, "inner_work")
    with running(mesh, tmp_path / "idle") as process:
        # What follows its first words is soon over.
        while True:
            idle = mesh.json("trace", "--pid", str(process.pid), "--for", "50ms")["sessions"][0]
            if not mesh.json("coverage", "show", idle)["functions"]:
                break
    assert f"B has no calls: in {idle} the program slept" in mesh.run("diff", session, idle).stdout
    assert f"what was recorded has no calls: in {idle}" in mesh.run("coverage", "show", idle).stdout
    found = mesh.json("diff", session, idle)
    assert (found["b"], {row["only_in"] for row in found["functions"]}) == ([idle], {"a"})


def test_what_cannot_be_meant_says_what_to_do(mesh: Mesh, session: str) -> None:
    assert "give either" in mesh.run("coverage", "show", code=2).stderr
    assert "give one of --pid, --name" in mesh.run("coverage", "plan", code=2).stderr
    done = mesh.run("diff", session, "nothing-there", code=3)
    assert "there is no session nothing-there" in done.stderr
