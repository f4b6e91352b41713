"""`permille coverage` and `permille diff` on a real mesh with real programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .conftest import Mesh, running


def test_rounds_show_an_unchanging_program_to_be_seen_and_its_sessions_to_be_alike(
    mesh: Mesh, busy: subprocess.Popen[str], busy_program: Path
) -> None:
    name = busy_program.name
    planned = mesh.json("coverage", "plan", "--name", name, "--rounds", "3")
    assert planned["choices"][0]["chosen"]
    assert planned["period_terms"][0][0]["name"] == "base"

    # Wants more than there can be: one round is enough.
    told = mesh.json("coverage", "start", "--name", name, "--for", "30ms", "--rounds", "3", "--min-gain", "1e9")
    assert len(told["sessions"]) == 1
    assert (told["rounds"][0]["next"], told["rounds"][0]["new_functions"] > 0) == ("ACTION_STOP", True)

    operation = told["operation"]["name"]
    shown = mesh.json("coverage", "show", operation)
    assert {"inner_work", "outer_work"} <= {row["name"] for row in shown["functions"]}
    assert "Functions of all sessions together" in mesh.run("coverage", "show", "--name", name).stdout

    same = mesh.json("diff", told["sessions"][0], operation)
    assert (same["similarity"], same["functions"], same["calls"]) == (1.0, [], [])


def test_another_program_differs_by_name(mesh: Mesh, session: str, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\nstatic volatile unsigned long sum;\n"
        "__attribute__((noinline)) void strange_work(void) { for (int i = 0; i < 200; i++) sum += i; }\n"
        'int main(void) { puts("begun"); fflush(stdout); for (;;) { strange_work(); usleep(50); } }\n'
    )
    subprocess.run(["cc", "-O1", "-o", tmp_path / "other", source], check=True)
    with running(mesh, tmp_path / "other") as process:
        (other,) = mesh.json("trace", "--pid", str(process.pid), "--for", "50ms")["sessions"]
    found = mesh.json("diff", session, other, "--top", "50")
    only = {row["name"]: row["only_in"] for row in found["functions"]}
    assert (only["inner_work"], only["strange_work"]) == ("a", "b")
    assert "only B" in mesh.run("diff", session, other).stdout


def test_what_cannot_be_meant_says_what_to_do(mesh: Mesh, session: str) -> None:
    assert "give either" in mesh.run("coverage", "show", code=2).stderr
    assert "give either --pid or --name" in mesh.run("coverage", "plan", code=2).stderr
    done = mesh.run("diff", session, "nothing-there", code=3)
    assert "there is no session nothing-there" in done.stderr
