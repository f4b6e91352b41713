"""Programs that write code at run time: their functions have the names that they told, and their code its times."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE_S, await_true
from tests.whole_mesh import WholeMesh, session_of

COUNTING, STRAIGHT = 1 + 2 * 101 + 1, 5


@pytest.fixture(scope="module")
def jitting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("jitting") / "jitting"
    subprocess.run(["gcc", "-O1", "-g", "-o", program, Path(__file__).with_name("jitting.c")], check=True)
    return program


@pytest.fixture
def clean_maps() -> Iterator[list[int]]:
    """Of the processes that a test puts here, the perf maps are removed."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)


def functions(mesh: WholeMesh, session: str) -> dict[str, dict[str, Any]]:
    report = mesh.report(session)
    assert report["session"]["lost_bytes"] == 0, report["losses"]
    return {row["name"]: row for row in report["functions"]}


def listed(mesh: WholeMesh, session: str, *arguments: str) -> list[dict[str, Any]]:
    """What `permille pt calls` says of the session in the store."""
    told = mesh.command("pt", "calls", str(mesh.state / "store" / "raw" / session), *arguments, "--json").stdout
    return [json.loads(line) for line in told.splitlines()]


def test_a_perf_map_names_the_functions(mesh: WholeMesh, jitting: Path, clean_maps: list[int], tmp_path: Path) -> None:
    with mesh.running(str(jitting), "map", str(tmp_path)) as process:
        clean_maps.append(process.pid)
        session = mesh.trace_of_work("--pid", str(process.pid), function="jit:counting a.js", calls=2)
    counting = functions(mesh, session)["jit:counting a.js"]
    assert counting["calls"] > 1
    assert abs(counting["self_instructions"] - COUNTING * counting["calls"]) < COUNTING
    assert any(row["function"] == "jit:counting a.js" for row in listed(mesh, session, "--table"))


def test_a_jitdump_tells_which_function_was_in_a_place_when(mesh: WholeMesh, jitting: Path, tmp_path: Path) -> None:
    with mesh.running(str(jitting), "dump", str(tmp_path)) as process:
        # On a busy machine it may not come to both for a while.
        for _ in range(20):
            session = mesh.trace_of_work("--pid", str(process.pid), function="jit:counting", calls=2, period="500ms")
            found = functions(mesh, session)
            if found.get("jit:straight", {}).get("calls", 0) > 1:
                break
    for name, instructions in (("jit:counting", COUNTING), ("jit:straight", STRAIGHT)):
        assert found[name]["calls"] > 1
        assert abs(found[name]["self_instructions"] - instructions * found[name]["calls"]) < instructions
    whole = [row for row in listed(mesh, session) if not row.get("began_before") and not row.get("not_over")]
    told = {(row["function"], row["self_instructions"]) for row in whole if row["function"].startswith("jit:")}
    assert told == {("jit:counting", COUNTING), ("jit:straight", STRAIGHT)}


@pytest.mark.parametrize("kind", ["map", "dump"])
def test_a_program_that_ends_meanwhile_has_its_names_too(
    mesh: WholeMesh, jitting: Path, clean_maps: list[int], tmp_path: Path, kind: str
) -> None:
    end = tmp_path / "end"
    with mesh.running(str(jitting), kind, str(tmp_path), str(end)) as process:
        clean_maps.append(process.pid)
        told = Path(f"/tmp/perf-{process.pid}.map") if kind == "map" else tmp_path / f"jit-{process.pid}.dump"
        await_true(told.exists, PATIENCE_S, str(told))
        with mesh.started("trace", "--pid", str(process.pid), "--for", "50s", "--json") as trace:
            mesh.await_work(process.pid, threads=1)
            end.touch()
            session = session_of(mesh.finished(trace))
    assert mesh.report(session)["session"]["stop_reason"] == "TARGET_EXITED"
    assert functions(mesh, session)[{"map": "jit:counting a.js", "dump": "jit:straight"}[kind]]["calls"] > 1
