"""What may go wrong while somebody traces: nothing is lost silently, nothing is doubled, nothing goes on for ever."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.client import MeshClient, answer, in_mesh
from permille.controller.domain.vpt_layout import State
from permille.mesh import discovery
from permille.mesh.config import MeshConfig
from permille.mesh.errors import PermilleError
from permille.mesh.operations import operation_error

from tests.processes import PATIENCE_S, Process, assert_ended, await_true
from tests.whole_mesh import SERVICES, RecordingWatch, WholeMesh, new_mesh, session_of
from tests.whole_session import assert_did_its_work, assert_whole, caught_decoding, recorded_s, waiting_session

# Beyond a period: what a starved recorder may take to notice its end.
SLACK_S = 5.0
EVERYONE = (*SERVICES, "etcd")


def each_killed(*quick: str) -> list[object]:
    """Everyone as a victim; but for `quick`, when there is time."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in EVERYONE]


@pytest.fixture
def target(mesh: WholeMesh, busy: Path) -> Iterator[Process]:
    """A program that executes little."""
    with mesh.running(str(busy), "paced") as process:
        yield process


@pytest.fixture
def spinning(mesh: WholeMesh, busy: Path) -> Iterator[Process]:
    """A program that executes much, which takes a while to decode."""
    with mesh.running(str(busy), "spinning") as process:
        yield process


@pytest.mark.parametrize("killed", each_killed("controller", "coverage", "etcd"))
def test_killed_during_a_recording(mesh: WholeMesh, target: Process, killed: str) -> None:
    known = {one["session_id"] for one in mesh.sessions()}
    with (
        RecordingWatch(mesh, target.pid) as watch,
        mesh.started("trace", "--pid", str(target.pid), "--for", "2s", "--json") as trace,
    ):
        mesh.await_recording(target.pid)
        mesh.kill(killed)
        session = session_of(mesh.finished(trace))
    report = assert_whole(mesh, session)
    assert_did_its_work(report)
    assert report["session"]["stop_reason"] in (
        ("PERIOD", "CONTROLLER_LOST") if killed == "controller" else ("PERIOD",)
    )
    assert recorded_s(report) >= 1.9
    assert watch.longest_s < 2 + SLACK_S
    assert {one["session_id"] for one in mesh.sessions()} - known == {session}


@pytest.mark.slow
@pytest.mark.parametrize("killed", each_killed("decoder", "etcd"))
def test_killed_during_decoding(mesh: WholeMesh, spinning: Process, killed: str) -> None:
    with caught_decoding(mesh, spinning.pid) as trace:
        mesh.kill(killed)
        assert trace.poll() is None
        session = session_of(mesh.finished(trace))
    assert_did_its_work(assert_whole(mesh, session))


@pytest.mark.slow
def test_permille_up_killed_leaves_nothing_and_the_next_one_carries_on(mesh: WholeMesh, target: Process) -> None:
    # The decoder has a worker as soon as there was something to decode.
    with mesh.started("trace", "--pid", str(target.pid), "--for", "200ms", "--json") as first:
        mesh.finished(first)
    started = mesh.processes()
    assert len(started) > len(EVERYONE)
    with (
        RecordingWatch(mesh, target.pid) as watch,
        mesh.started("trace", "--pid", str(target.pid), "--for", "3s", "--json") as trace,
    ):
        mesh.await_recording(target.pid)
        mesh.up.kill()
        mesh.up.wait()
        assert_ended(started)
        # Nobody is there to end the recording.
        await_true(lambda: (page := mesh.recorder(target.pid)) and page.state == State.FINISHED, PATIENCE_S, "its end")
        assert watch.longest_s < 3 + SLACK_S
        mesh.start()
        session = session_of(mesh.finished(trace))
    report = assert_whole(mesh, session)
    assert_did_its_work(report)
    assert report["session"]["stop_reason"] == "CONTROLLER_LOST"
    assert recorded_s(report) >= 2.9


def test_a_target_that_is_killed_meanwhile(mesh: WholeMesh, target: Process) -> None:
    with mesh.started("trace", "--pid", str(target.pid), "--for", "50s", "--json") as trace:
        mesh.await_work(target.pid)
        target.kill()
        target.wait()
        session = session_of(mesh.finished(trace))
    report = assert_whole(mesh, session)
    assert_did_its_work(report)
    assert report["session"]["stop_reason"] == "TARGET_EXITED"
    assert "the program ended before the period was over" in {note["text"] for note in report["notes"]}
    assert not (mesh.vpt_dir / str(target.pid)).exists()
    # And from now on there is no such process.
    assert mesh.refusal("trace", "--pid", str(target.pid), code=3)["reason"] == "NO_SUCH_PROCESS"


@pytest.mark.slow
def test_a_target_that_ends_by_itself_meanwhile(mesh: WholeMesh, busy: Path) -> None:
    with (
        mesh.running(str(busy), "paced", "4") as target,
        mesh.started("trace", "--pid", str(target.pid), "--for", "50s", "--json") as trace,
    ):
        mesh.await_recording(target.pid)
        session = session_of(mesh.finished(trace))
        assert target.wait(PATIENCE_S) == 0
    assert assert_whole(mesh, session)["session"]["stop_reason"] == "TARGET_EXITED"


def test_a_target_that_cannot_be_traced(mesh: WholeMesh) -> None:
    nobody = mesh.refusal("trace", "--pid", "4000000", "--for", "1s", code=3)
    assert nobody["reason"] == "NO_SUCH_PROCESS" and "4000000" in nobody["message"]
    ordinary = mesh.refusal("trace", "--pid", str(os.getpid()), "--for", "1s", code=4)
    assert ordinary["reason"] == "NOT_RECORDABLE" and "permille run" in ordinary["help"]
    unknown = mesh.refusal("trace", "--name", "no-such-program", code=3)
    assert "no-such-program" in unknown["message"] and unknown["help"]


def test_a_program_that_cannot_be_started(mesh: WholeMesh, tmp_path: Path) -> None:
    assert mesh.command("run", "-q", "--", "/no/such/program", code=3).stderr
    data = tmp_path / "data"
    data.write_bytes(b"\0" * 64)
    assert "chmod" in mesh.command("run", "-q", "--", str(data), code=5).stderr
    data.chmod(0o755)
    refused = mesh.command("run", "-q", "--", str(data), code=None)
    assert refused.returncode in (2, 4) and str(data) in refused.stderr


def test_a_target_is_traced_once_at_a_time(mesh: WholeMesh, target: Process) -> None:
    with mesh.started("trace", "--pid", str(target.pid), "--for", "5s", "--json") as first:
        mesh.await_recording(target.pid)
        refused = mesh.refusal("trace", "--pid", str(target.pid), "--for", "100ms", code=4)
        assert refused["reason"] == "ALREADY_TRACED" and str(target.pid) in refused["message"]
        session = session_of(mesh.finished(first))
    assert session in refused["message"]
    report = assert_whole(mesh, session)
    assert report["session"]["stop_reason"] == "PERIOD" and recorded_s(report) >= 4.9


def started_at_once(
    mesh: WholeMesh, pid: int, requests: list[str], *, period_ms: int
) -> tuple[list[str], list[PermilleError]]:
    """The names of the operations that as many StartCoverage calls at once began, and the refusals."""
    wish = coverage_pb2.CoverageRequest(target=coverage_pb2.Target(pids=[pid]), period_ms=period_ms)

    async def start(client: MeshClient) -> list[coverage_pb2.StartCoverageResponse | BaseException]:
        # A machine that stood still for seconds has lost its leases, and gets them again.
        await discovery.wait_for(client.etcd, "coverage", timeout_s=PATIENCE_S)
        coverage = await client.coverage()
        calls = [
            answer(coverage.StartCoverage(coverage_pb2.StartCoverageRequest(request_id=request, coverage=wish)))
            for request in requests
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = in_mesh(MeshConfig(state_dir=mesh.state, call_timeout_s=PATIENCE_S), start)
    names = [one.operation.name for one in answers if isinstance(one, coverage_pb2.StartCoverageResponse)]
    refusals = [one for one in answers if isinstance(one, PermilleError)]
    assert len(names) + len(refusals) == len(requests), answers
    return names, refusals


def ended(mesh: WholeMesh, names: list[str], *, but: int = 0) -> list[operation_pb2.Operation]:
    """These operations once all, or all `but` so many, are done."""

    async def wait(client: MeshClient) -> list[operation_pb2.Operation]:
        while True:
            coverage = await client.coverage()
            requests = [operation_pb2.GetOperationRequest(name=name) for name in names]
            answers = await asyncio.gather(*(answer(coverage.GetOperation(request)) for request in requests))
            operations = [response.operation for response in answers]
            if sum(not operation.done for operation in operations) <= but:
                return operations
            await asyncio.sleep(0.2)

    return in_mesh(MeshConfig(state_dir=mesh.state), wait)


def test_fifty_starts_with_one_request_id_are_one_trace(mesh: WholeMesh, target: Process) -> None:
    known = {one["session_id"] for one in mesh.sessions()}
    names, refusals = started_at_once(mesh, target.pid, ["fifty-times-the-same"] * 50, period_ms=300)
    assert (len(names), len(set(names)), refusals) == (50, 1, [])
    (operation,) = ended(mesh, names[:1])
    assert operation_error(operation) is None
    (session,) = {one["session_id"] for one in mesh.sessions()} - known
    assert_whole(mesh, session)


def test_of_fifty_different_starts_of_one_target_one_records(mesh: WholeMesh, target: Process) -> None:
    known = {one["session_id"] for one in mesh.sessions()}
    requests = [f"one-of-fifty-{number}" for number in range(50)]
    names, refusals = started_at_once(mesh, target.pid, requests, period_ms=59_000)
    failed = [error for one in ended(mesh, names, but=1) if (error := operation_error(one))]
    assert len(refusals) + len(failed) == 49
    assert {error.reason for error in refusals + failed} == {"ALREADY_TRACED"}
    mesh.await_work(target.pid)
    target.kill()
    target.wait()
    assert [operation_error(one) for one in ended(mesh, names)].count(None) == 1
    (session,) = {one["session_id"] for one in mesh.sessions()} - known
    assert_did_its_work(assert_whole(mesh, session))


def interrupted(mesh: WholeMesh, target: Process) -> str:
    """A session that was recorded, and not decoded, because of Ctrl-C; its id."""
    with mesh.started("trace", "--pid", str(target.pid), "--for", "50s", "--json") as trace:
        mesh.await_work(target.pid)
        trace.send_signal(signal.SIGINT)
        error = json.loads(mesh.finished(trace, code=130).stderr)["error"]
    session = str(error["metadata"]["sessions"]).rpartition("/")[2]
    assert session in error["message"]
    return session


def test_ctrl_c_ends_the_recording_and_keeps_what_there_is(mesh: WholeMesh, target: Process) -> None:
    session = interrupted(mesh, target)
    page = mesh.recorder(target.pid)
    assert page is not None and page.state != State.ACTIVE
    (listed,) = [one for one in mesh.sessions() if one["session_id"] == session]
    assert (listed["state"], listed["stop_reason"]) == ("STORED", "STOPPED")
    assert mesh.counts(session)["calls"] == 0
    # The program goes on and can be traced again; the kept recording is decoded when somebody looks at it.
    assert_whole(mesh, mesh.trace(target.pid, "100ms"))
    report = assert_whole(mesh, session)
    assert_did_its_work(report)
    assert recorded_s(report) < 50


def test_a_damaged_segment_is_a_counted_loss(mesh: WholeMesh, target: Process) -> None:
    session = interrupted(mesh, target)
    raw = mesh.state / "store" / "raw" / session
    segments = json.loads((raw / "manifest.json").read_text())["segments"]
    damaged = max(segments, key=lambda segment: int(segment["size_bytes"]))
    file = mesh.state / "store" / damaged["key"]
    packed = bytearray(file.read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    file.write_bytes(packed)
    report = assert_whole(mesh, session)
    (loss,) = [loss for loss in report["losses"] if "damaged" in loss["reason"]]
    assert loss["size_bytes"] == damaged["size_bytes"]
    assert damaged["key"] in loss["reason"] and "backup" in loss["knob"]
    # The other thread is there.
    assert report["session"]["instructions"] > 0
    assert {segment["segment"] for segment in report["segments"]} == {segment["index"] for segment in segments}


@pytest.fixture
def own_program(tmp_path: Path) -> Path:
    """The busy program with a build id that nobody has seen before."""
    program = tmp_path / "own"
    build_id = f"-Wl,--build-id=0x{os.urandom(20).hex()}"
    source = Path(__file__).with_name("busy.c")
    subprocess.run(["gcc", "-O1", "-pthread", build_id, "-o", program, source], check=True)
    return program


def test_a_binary_that_the_store_lost_is_a_loss_that_names_it(mesh: WholeMesh, own_program: Path) -> None:
    with mesh.running(str(own_program), "paced") as target:
        session = interrupted(mesh, target)
    maps = json.loads((mesh.state / "store" / "raw" / session / "maps.json").read_text())
    changes = [change for process in maps["processes"] for change in process["changes"]]
    (key,) = {change["binary"] for change in changes if change.get("path") == str(own_program)}
    (mesh.state / "store" / key).unlink()
    report = assert_whole(mesh, session)
    lost = [loss for loss in report["losses"] if str(own_program) in loss["reason"]]
    assert lost and all(loss["size_bytes"] > 0 and "upload-binary" in loss["knob"] for loss in lost)
    # What was executed in the libraries is there.
    assert report["session"]["instructions"] > 0
    # The way out.
    mesh.command("upload-binary", str(own_program))
    assert (mesh.state / "store" / key).exists()


@pytest.mark.slow
def test_a_program_that_is_gone_with_its_file_is_decoded_without_its_names(mesh: WholeMesh, own_program: Path) -> None:
    with mesh.running(str(own_program), "paced", stdout=subprocess.PIPE) as target:
        assert target.stdout is not None and target.stdout.readline() == "ready\n"
        own_program.unlink()
        with mesh.started("trace", "--pid", str(target.pid), "--for", "50s", "--json") as trace:
            mesh.await_work(target.pid)
            target.kill()
            session = session_of(mesh.finished(trace))
    report = assert_whole(mesh, session)
    assert max(row["calls"] for row in report["functions"]) > 200
    assert "step_of_work" not in {row["name"] for row in report["functions"]}
    assert any("without a name" in note["text"] for note in report["notes"])


def test_a_full_store_delays_and_loses_nothing(tmp_path: Path, small_store: Path, busy: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    mesh = new_mesh(state, PERMILLE_STORE=f"file://{small_store}")
    try:
        mesh.start()
        with (
            mesh.running(str(busy), "paced") as target,
            mesh.started("trace", "--pid", str(target.pid), "--for", "500ms", "--json") as trace,
        ):
            waiting = waiting_session(mesh, trace)
            assert waiting["state"] == "STORING" and waiting["error_help"]
            assert trace.poll() is None
            subprocess.run(["mount", "-o", "remount,size=256m", small_store], check=True)
            session = session_of(mesh.finished(trace))
            assert session == waiting["session_id"]
            assert_did_its_work(assert_whole(mesh, session))

            # Full again, when what was recorded is to be decoded.
            undecoded = interrupted(mesh, target)
            filler = small_store / "filler"
            # Unbuffered: closing the file would else try, and fail, to write what did not fit.
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
                while True:
                    file.write(bytes(1 << 20))
            refused = mesh.refusal("report", undecoded, code=8)
            assert refused["message"] and refused["help"]
            filler.unlink()
            assert_did_its_work(assert_whole(mesh, undecoded))
        mesh.stop()
    finally:
        mesh.close()
