"""What goes wrong is told as a user wants it: what, why, and the way out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.cli.diagnosis import machine
from permille.mesh.config import MeshConfig, load

from .conftest import Mesh, await_true, end, new_mesh, permille_alone, running


def error(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    found: dict[str, str] = json.loads(done.stderr)["error"]
    assert found["message"]
    return found


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--pid", "4194000", "--for", "10ms"], 3, "NO_SUCH_PROCESS"),
        (["--pid", "1", "--for", "10ms"], 4, "NOT_RECORDABLE"),
        (["--name", "no-such-program", "--for", "10ms"], 3, "NO_SUCH_PROCESS"),
        (["--pid", "1", "--for", "10ms", "--node", "elsewhere"], 3, "NODE_NOT_FOUND"),
        (["--pid", "1", "--for", "soon"], 2, "DURATION"),
        (["--pid", "1", "--for", "10h"], 2, "PERIOD_OUT_OF_RANGE"),
        (["--pid", "1", "--for", "10m"], 2, "PERIOD_OUT_OF_RANGE"),
        (["--pid", "1", "--buffer", "much"], 2, "SIZE"),
        (["--pid", "1", "--keep", "0d"], 2, "RETENTION"),
        (["--pid", "1", "--keep=-7d"], 2, "RETENTION"),
        (["--pid", "1", "--psb-period", "1KiB"], 2, "PSB_PERIOD"),
        (["--pid", "1", "--name", "x"], 2, "TARGET"),
        (["--pid", "5000000"], 2, "PID_OUT_OF_RANGE"),
        (["--pid=-1"], 2, "PID_OUT_OF_RANGE"),
        ([], 2, "TARGET"),
    ],
)
def test_a_wish_that_cannot_be_fulfilled(mesh: Mesh, arguments: list[str], code: int, reason: str) -> None:
    found = error(mesh.run("trace", *arguments, "--json", code=code))
    assert found["reason"] == reason
    assert found["help"]


def test_a_back_end_that_this_machine_lacks_is_refused_with_the_reason_that_the_doctor_tells(
    mesh: Mesh, busy: subprocess.Popen[str]
) -> None:
    checks = {check["name"]: check for check in mesh.json("doctor")["checks"]}
    for backend in [name for name in ("kmod", "perf") if not checks[name]["available"]]:
        for pid, others in ((busy.pid, 1), (1, 0)):
            found = error(mesh.run("trace", "--pid", str(pid), "--backend", backend, "--json", code=4))
            assert found["reason"] == "BACKEND_UNAVAILABLE"
            assert found["message"].startswith(f"{backend}: not on this machine (")
            assert found["message"].endswith(f", because {checks[backend]['detail']}")
            # vpt is a way out for what it records.
            assert found["help"].count("vpt") == others


def test_a_plan_is_refused_the_memory_that_a_recording_is_refused(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    wish = ("trace", "--pid", str(busy.pid), "--for", "10ms", "--buffer", "1000TB", "--json")
    refused = [error(mesh.run(*wish, *more, code=8)) for more in ((), ("--dry-run",))]
    assert {found["reason"] for found in refused} == {"SHARED_MEMORY_FULL"}


def test_a_misspelt_name_gets_the_nearest(mesh: Mesh, busy: subprocess.Popen[str], busy_program: Path) -> None:
    assert busy_program.name in mesh.run("trace", "--name", "permile-busy", code=3).stderr


def test_a_second_trace_of_the_same_program_is_refused(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    first = mesh.popen("trace", "--pid", str(busy.pid), "--for", "50s", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert first.stderr is not None
    try:
        for line in first.stderr:
            if line.startswith("recording"):
                break
        refused = mesh.run("trace", "--pid", str(busy.pid), "--for", "10ms", "--json", code=4)
        assert error(refused)["reason"] == "ALREADY_TRACED"
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=120)


def test_a_snapshot_of_what_takes_none_is_refused_with_what_does(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    found = error(mesh.run("trace", "--pid", str(busy.pid), "--for", "10ms", "--snapshot", "--json", code=2))
    assert found["reason"] == "SNAPSHOT_UNSUPPORTED"
    assert "--backend perf" in found["help"]


def test_ctrl_c_cancels_and_keeps_what_was_recorded(mesh: Mesh, busy: subprocess.Popen[str]) -> None:
    trace = mesh.popen("trace", "--pid", str(busy.pid), "--for", "50s", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert trace.stderr is not None
    told = []
    for line in trace.stderr:
        told.append(line)
        if line.startswith("recording"):
            break
    trace.send_signal(signal.SIGINT)
    told.append(trace.communicate(timeout=120)[1])
    assert trace.returncode == 130
    assert "cancelled" in told[-1]
    # It is there, not decoded; asking for its report decodes it.
    kept = mesh.json("sessions")["sessions"][0]
    assert kept["state"] == "STORED"
    assert mesh.json("report", kept["session_id"])["session"]["stop_reason"] == "STOPPED"
    assert mesh.json("sessions")["sessions"][0]["state"] == "DECODED"


def test_a_program_that_ends_meanwhile_is_reported_as_far_as_it_came(mesh: Mesh, busy_program: Path) -> None:
    with running(mesh, busy_program) as program:
        trace = mesh.popen(
            "trace", "--pid", str(program.pid), "--for", "50s", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert trace.stderr is not None
        for line in trace.stderr:
            if line.startswith("recording"):
                break
        # It is told as soon as the node is asked to.
        while not any(session["state"] == "RECORDING" for session in mesh.json("sessions")["sessions"]):
            time.sleep(0.1)
        program.terminate()
        out, told = trace.communicate(timeout=120)
    assert trace.returncode == 0, told
    session = out.splitlines()[0].rpartition("/")[2]
    report = mesh.json("report", session)
    assert report["session"]["stop_reason"] == "TARGET_EXITED"
    assert any("ended before" in note["text"] for note in report["notes"])


def test_a_decoder_killed_in_the_middle_goes_on_and_doubles_nothing(own_mesh: Mesh, busy_program: Path) -> None:
    own_mesh.start()
    with running(own_mesh, busy_program) as program:
        trace = own_mesh.popen(
            "trace", "--pid", str(program.pid), "--for", "1s", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert trace.stderr is not None
        for line in trace.stderr:
            if line.startswith("decoding"):
                break
        os.kill(own_mesh.processes()["decoder"].pid, signal.SIGKILL)
        out, told = trace.communicate(timeout=200)
    assert trace.returncode == 0, told
    ended = "decoder     ended     killed by SIGKILL"
    await_true(lambda: ended in own_mesh.log, 60, f"{ended!r} in the log")
    session = out.splitlines()[0].removeprefix("session ")
    assert [one["name"] for one in own_mesh.json("sessions")["sessions"]] == [session]
    report = own_mesh.json("report", session)
    assert sum(row["self_instructions"] for row in report["functions"]) == report["session"]["instructions"]
    rows = own_mesh.json("query", "SELECT count(*) AS rows, count(DISTINCT (segment, call)) AS calls FROM calls")[
        "rows"
    ]
    assert rows[0]["rows"] == rows[0]["calls"] == report["session"]["calls"]


@pytest.mark.slow
def test_coverage_killed_in_the_middle_is_waited_for(own_mesh: Mesh, busy_program: Path) -> None:
    own_mesh.start()
    with running(own_mesh, busy_program) as program:
        trace = own_mesh.popen(
            "trace", "--pid", str(program.pid), "--for", "2s", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert trace.stderr is not None
        for line in trace.stderr:
            if line.startswith("recording"):
                break
        os.kill(own_mesh.processes()["coverage"].pid, signal.SIGKILL)
        out, told = trace.communicate(timeout=200)
    assert trace.returncode == 0, told
    assert len(own_mesh.json("sessions")["sessions"]) == 1
    assert out.startswith("session nodes/")


@pytest.fixture
def small_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_store_is_told_and_with_room_again_nothing_is_lost(small_folder: Path, busy_program: Path) -> None:
    mesh = new_mesh(PERMILLE_STORE=f"file://{small_folder}")

    def storing() -> str:
        told = [one["error_message"] for one in mesh.json("sessions")["sessions"]]
        return told[0] if told else ""

    try:
        mesh.start()
        with running(mesh, busy_program) as program:
            trace = mesh.popen(
                "trace", "--pid", str(program.pid), "--for", "2s", stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            await_true(storing, 120, "the full store to be told")
            assert trace.stderr is not None
            waiting = next(line for line in trace.stderr if line.startswith("waiting: "))
            assert "small" in waiting
            subprocess.run(["mount", "-o", "remount,size=400m", small_folder], check=True)
            out, told = trace.communicate(timeout=200)
        assert trace.returncode == 0, told
        report = mesh.json("report", out.splitlines()[0].removeprefix("session "))
        assert report["session"]["instructions"] > 0
    finally:
        end(mesh)


def test_without_a_mesh_every_command_says_how_to_start_one(tmp_path: Path) -> None:
    commands = [
        ["trace", "--pid", "1"],
        ["sessions"],
        ["report"],
        ["query", "SELECT 1"],
        ["export", "--format", "folded"],
        ["delete", "x", "--yes"],
        ["upload-binary", "/bin/sh"],
        ["run", "--", "true"],
    ]
    for arguments in commands:
        failed = permille_alone(*arguments, "--state-dir", tmp_path) if arguments[0] != "run" else permille_alone(
            "run", "--state-dir", tmp_path, "--", "true"
        )  # fmt: skip
        assert failed.returncode == 6, arguments
        assert "permille up" in failed.stderr
        assert "Traceback" not in failed.stderr


def test_what_is_no_elf_file_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """No mesh is there to refuse it."""
    pipe, text = tmp_path / "pipe", tmp_path / "text"
    os.mkfifo(pipe)
    text.write_text("no program\n")
    for files, why in ((["/dev/zero"], "a device"), ([pipe], "a pipe"), (["/bin/sh", "--debug", text], "otherwise")):
        failed = permille_alone("upload-binary", *files, "--json", "--state-dir", tmp_path / "state")
        found = error(failed)
        assert (failed.returncode, found["reason"]) == (2, "NOT_AN_ELF")
        assert str(files[-1]) in found["message"]
        assert why in found["message"]


def test_an_etcd_that_is_down_is_named(tmp_path: Path) -> None:
    failed = permille_alone("sessions", "--etcd", "127.0.0.1:1", PERMILLE_STATE_DIR=str(tmp_path))
    assert failed.returncode == 6
    assert "127.0.0.1:1" in failed.stderr
    assert "permille up" in failed.stderr


def test_the_doctor_and_the_bundle_work_without_a_mesh(tmp_path: Path) -> None:
    found = permille_alone("doctor", "--json", "--state-dir", tmp_path / "state")
    assert found.returncode in (0, 4)
    assert json.loads(found.stdout)["mesh"]["services"] == []
    file = tmp_path / "bundle.tar.gz"
    bundle = permille_alone("support-bundle", "-o", file, "--json", "--state-dir", tmp_path / "state")
    assert bundle.returncode == 0, bundle.stderr
    assert "missing.txt" in json.loads(bundle.stdout)["files"]


AS_ANOTHER_USER = """
import asyncio, io, os, sys, tarfile
from permille.cli.diagnosis.diagnosis import diagnose
from permille.cli.diagnosis.support_bundle import SupportBundle
from permille.mesh.config import MeshConfig, load
config = load(MeshConfig, overrides={"state_dir": sys.argv[1]}, environment={})
if os.getuid() == 0:
    os.setuid(65534)
found = asyncio.run(diagnose(config))
print(len(found.checks), found.mesh.error.reason, next(check for check in found.checks if check.name == "store"))
bundle = asyncio.run(SupportBundle(config, None, {}).archive())
with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
    print(archive.extractfile("permille-support/missing.txt").read().decode())
"""


def test_the_doctor_and_the_bundle_work_for_a_user_who_may_not_enter_the_state_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    (state / "etcd").mkdir()
    (state / "etcd" / "endpoint").write_text("127.0.0.1:1")
    state.chmod(0)
    told = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, state], check=True, capture_output=True, text=True
    ).stdout
    assert told.startswith("9 STATE_DIR_UNUSABLE Check(name='store', available=False")
    assert f"{state / 'store'} may not be seen by this user: Permission denied" in told
    assert f"{state / 'logs'}: Permission denied" in told


def test_what_cannot_be_looked_at_does_not_hide_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SHARED_MEMORY", tmp_path / "none")
    checks = {check.name: check for check in machine.machine_checks(load(MeshConfig, environment={}))}
    assert len(checks) == 9
    assert checks["shared_memory"].detail == f"cannot be looked at: {tmp_path / 'none'}: No such file or directory"
    assert not checks["shared_memory"].available


def test_the_doctor_names_the_fix_for_what_is_missing(tmp_path: Path) -> None:
    # A PATH without QEMU.
    found = permille_alone("doctor", "--state-dir", tmp_path, PATH="/nonexistent")
    assert found.returncode == 4
    assert "apt-get install qemu-user" in found.stdout


@pytest.mark.parametrize("words", [["pt", "stat"], ["upload-binary"]], ids=" ".join)
def test_a_name_of_several_lines_is_told_on_one(tmp_path: Path, words: list[str]) -> None:
    failed = permille_alone(*words, tmp_path / "none\n  reason: NONE")
    assert failed.returncode == 3
    assert "none\\x0a  reason: NONE" in failed.stderr
    assert "\n  reason: NONE" not in failed.stderr
