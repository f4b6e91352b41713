"""The operator between a real API server and a real mesh: from a TraceRequest to what the program did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from permille.controller.domain.vpt_layout import State
from permille.mesh.config import default_node

from tests.kubernetes.api_server import Object, User, eventually
from tests.kubernetes.asked_mesh import AskedMesh
from tests.kubernetes.operator_process import Operator
from tests.kubernetes.other_node import another_node
from tests.kubernetes.pods import made_pod, running_pod
from tests.kubernetes.trace_requests import (
    NAMESPACE,
    assert_recorded_once,
    assert_rounds_of_their_own,
    condition,
    described_status,
    events_of,
    finished,
    ids,
    request,
    sessions_of,
)
from tests.processes import Process
from tests.whole_session import assert_did_its_work, assert_whole

pytestmark = pytest.mark.slow


def test_a_request_becomes_a_recording_of_its_pod(
    mesh: AskedMesh, operator: Operator, admin: User, pod: str, target: Process
) -> None:
    known = ids(mesh)
    made = admin.made(request(period="300ms"))
    body = finished(admin, made["metadata"]["name"])
    assert_recorded_once(mesh, admin, body, known)
    status = body["status"]
    assert (status["replicas"], status["finishedReplicas"], status["failedReplicas"]) == (1, 1, 0)
    assert condition(body, "Accepted")["message"] == "1 of 1 running pods on 1 nodes"
    assert body["metadata"]["finalizers"] == ["permille.dev/recordings"]
    eventually(lambda: len(events_of(admin, body)) >= 2, "events")
    assert sorted(events_of(admin, body)) == [("Normal", "Accepted"), ("Normal", "Decoded")]
    (session,) = sessions_of(admin, body)
    # What is done waits for nothing.
    assert set(session["status"]) == set(described_status(admin, "tracesessions")) - {"waiting"}
    eventually(lambda: len(events_of(admin, session)) >= 2, "events of the session")
    assert sorted(events_of(admin, session)) == [("Normal", "Decoded"), ("Normal", "Started")]


@pytest.mark.usefixtures("operator")
def test_one_request_records_the_replicas_of_several_nodes(
    mesh: AskedMesh, admin: User, busy: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    known = ids(mesh)
    with another_node(mesh, "n2", tmp_path_factory.mktemp("n2")) as second, ExitStack() as pods:
        for number, (where, node) in enumerate(((mesh, default_node()), (second, "n2"), (second, "n2"))):
            program = pods.enter_context(where.running(str(busy), "paced"))
            name = f"fleet-{number}"
            pods.enter_context(running_pod(admin, NAMESPACE, name, app="fleet", node=node, pid=program.pid))
        selected = {"selector": {"matchLabels": {"app": "fleet"}}}
        made = admin.made(request(target=selected, period="300ms", maxReplicas=3))
        body = finished(admin, made["metadata"]["name"])
    assert condition(body, "Complete")["reason"] == "Decoded", body["status"]
    status = body["status"]
    assert (status["replicas"], status["finishedReplicas"], status["failedReplicas"]) == (3, 3, 0)
    assert condition(body, "Accepted")["message"] == "3 of 3 running pods on 2 nodes"
    sessions = sessions_of(admin, body)
    assert sorted(one["spec"]["nodeName"] for one in sessions) == sorted([default_node(), "n2", "n2"])
    recordings = [name.rpartition("/")[2] for one in sessions for name in one["status"]["recordings"]]
    assert len(recordings) == 3 and ids(mesh) - known == set(recordings)
    reports = [assert_whole(mesh, recording) for recording in recordings]
    for report in reports:
        assert_did_its_work(report)
    # Replicas of one build are one program: what each did adds up.
    together = mesh.json("coverage", "show", *recordings, "--top", "1000")
    (steps,) = [one for one in together["functions"] if one["name"] == "step_of_work"]
    alone = [row["calls"] for report in reports for row in report["functions"] if row["name"] == "step_of_work"]
    assert steps["sessions"] == len(alone) == 3 and steps["calls"] >= sum(alone)


@pytest.mark.usefixtures("operator")
def test_of_a_request_of_which_a_pod_fails_the_others_are_the_result(mesh: AskedMesh, admin: User, busy: Path) -> None:
    known = ids(mesh)
    # The node is real, the second pod's container is not.
    made_pod(admin, NAMESPACE, "mixed-1", node=default_node(), app="mixed")
    with (
        mesh.running(str(busy), "paced") as program,
        running_pod(admin, NAMESPACE, "mixed-0", app="mixed", node=default_node(), pid=program.pid),
    ):
        target = {"selector": {"matchLabels": {"app": "mixed"}}}
        made = admin.made(request(target=target, period="200ms", maxReplicas=2))
        body = finished(admin, made["metadata"]["name"])
    sessions = {one["spec"]["podName"]: one for one in sessions_of(admin, body)}
    why = condition(sessions["mixed-1"], "Failed")
    assert (why["status"], condition(sessions["mixed-0"], "Complete")["reason"]) == ("True", "Decoded")
    complete, status = condition(body, "Complete"), body["status"]
    assert (complete["status"], complete["reason"]) == ("True", "PartlyDecoded")
    assert complete["message"] == f"1 of 2 pods failed: {why['message']}"
    assert not condition(body, "Failed")
    assert (status["replicas"], status["finishedReplicas"], status["failedReplicas"]) == (2, 2, 1)
    assert len(ids(mesh) - known) == 1
    eventually(lambda: ("Warning", "PartlyDecoded") in events_of(admin, body), "the event")


@pytest.mark.usefixtures("operator")
def test_a_program_that_writes_little_may_be_recorded_twice_on_a_node(
    mesh: AskedMesh, admin: User, pod: str, busy: Path
) -> None:
    # What it writes is measured now; the next profile knows it.
    known = ids(mesh)
    assert_recorded_once(mesh, admin, finished(admin, admin.made(request(period="200ms"))["metadata"]["name"]), known)
    with ExitStack() as pods:
        for number in range(2):
            program = pods.enter_context(mesh.running(str(busy), "paced"))
            name = f"twin-{number}"
            pods.enter_context(running_pod(admin, NAMESPACE, name, app="twins", node=default_node(), pid=program.pid))
        target = {"selector": {"matchLabels": {"app": "twins"}}}
        made = admin.made(request(target=target, purpose="Profiling", priority=100))
        body = finished(admin, made["metadata"]["name"])
    assert condition(body, "Complete")["reason"] == "Decoded", body["status"]
    assert [one["reason"] for one in body["status"]["sessions"]] == [
        f"{number} of 2: spread over versions, zones and nodes" for number in (1, 2)
    ]


def test_rounds_look_longer_at_a_pod_go_to_the_next_one_and_come_back(
    mesh: AskedMesh, operator: Operator, admin: User, changing: Path
) -> None:
    known = ids(mesh)
    with operator.having(MIN_GAIN="1e-9", MIN_GAIN_PER_CORE_SECOND="1e-9"), pods_of(mesh, admin, changing, 2) as target:
        # One of the functions that take turns is called every 20 ms: in this time most of them once.
        made = admin.made(request(target=target, purpose="Profiling", rounds=5, period="700ms"))
        body = finished(admin, made["metadata"]["name"])
    assert_rounds_of_their_own(mesh, admin, body, known)
    status = body["status"]
    rounds, (first, second) = status["rounds"], (one["podName"] for one in status["sessions"])
    assert [(one["podName"], one["periodMilliseconds"], one["next"]) for one in rounds[:2]] == [
        (first, 700, "Replica"),
        (second, 700, "Longer"),
    ]
    assert (rounds[2]["podName"], rounds[2]["periodMilliseconds"]) == (second, 1400)
    # Two seconds are the longest: then at the latest the other pod has its turn again, for as long.
    again = next(one for one in rounds[3:] if one["podName"] == first)
    assert rounds[again["number"] - 2]["next"] == "Replica"
    assert again["periodMilliseconds"] == rounds[again["number"] - 2]["periodMilliseconds"] >= 1400
    assert rounds[-1]["reason"] == "5 rounds are as many as were asked for"
    assert (
        condition(body, "Complete")["message"]
        == f"2 of 2 pods recorded and decoded in 5 rounds; {rounds[-1]['reason']}"
    )
    assert (status["replicas"], status["finishedReplicas"], status["failedReplicas"]) == (2, 2, 0)


def test_rounds_end_when_another_one_is_not_worth_its_core_seconds(
    mesh: AskedMesh, operator: Operator, admin: User, changing: Path
) -> None:
    known = ids(mesh)
    with operator.having(MIN_GAIN="1e-9", MIN_GAIN_PER_CORE_SECOND="1e9"), pods_of(mesh, admin, changing, 2) as target:
        made = admin.made(request(target=target, purpose="Profiling", rounds=3, period="200ms"))
        body = finished(admin, made["metadata"]["name"])
    assert_rounds_of_their_own(mesh, admin, body, known)
    status = body["status"]
    # The second pod had no turn.
    assert (status["replicas"], status["finishedReplicas"], len(status["sessions"])) == (1, 1, 2)
    ((told, following),) = [(one["reason"], one["next"]) for one in status["rounds"]]
    assert following == "Stop" and told.startswith("another replica: ")
    assert told.endswith(" for each core-second: 1e-09 and 1e+09 are wanted")


@contextmanager
def pods_of(mesh: AskedMesh, admin: User, program: Path, number: int) -> Iterator[Object]:
    """So many pods with the program in them, as a target."""
    with ExitStack() as pods:
        for one in range(number):
            process, name = pods.enter_context(mesh.running(str(program))), f"{program.name}-{one}"
            pods.enter_context(
                running_pod(admin, NAMESPACE, name, app=program.name, node=default_node(), pid=process.pid)
            )
        yield {"selector": {"matchLabels": {"app": program.name}}}


def test_a_finished_request_goes_when_its_time_is_over(operator: Operator, admin: User, pod: str) -> None:
    made = admin.made(request(period="100ms", ttlSecondsAfterFinished=0))
    name = made["metadata"]["name"]
    eventually(lambda: admin.get("TraceRequest", NAMESPACE, name).status == 404, "its end")


def test_deleting_a_request_stops_its_recording(
    mesh: AskedMesh, operator: Operator, admin: User, pod: str, target: Process
) -> None:
    known = ids(mesh)
    name = admin.made(request(period="60s"))["metadata"]["name"]
    mesh.await_recording(target.pid)
    admin.delete("TraceRequest", NAMESPACE, name)
    eventually(lambda: admin.get("TraceRequest", NAMESPACE, name).status == 404, "its end")
    page = mesh.recorder(target.pid)
    assert page is not None and page.state != State.ACTIVE
    # What it recorded until then is kept.
    (session,) = [one for one in mesh.sessions() if one["session_id"] not in known]
    assert (session["state"], session["stop_reason"]) == ("STORED", "STOPPED")
