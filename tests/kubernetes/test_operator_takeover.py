"""Whoever dies, or is away for a while: what was asked for is recorded once."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from permille.controller.domain.vpt_layout import State
from permille.mesh.config import default_node

from tests.kubernetes.api_server import ApiServer, Object, User, eventually
from tests.kubernetes.asked_mesh import AskedMesh
from tests.kubernetes.operator_process import Operator
from tests.kubernetes.other_node import controller, without_controller
from tests.kubernetes.pods import made_node, made_pod, running_pod
from tests.kubernetes.trace_requests import (
    NAMESPACE,
    assert_recorded_once,
    assert_rounds_of_their_own,
    condition,
    events_of,
    finished,
    ids,
    request,
    sessions_of,
)
from tests.processes import PATIENCE_S, Process

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("operator")
def test_a_node_whose_controller_is_started_again_is_waited_for(
    mesh: AskedMesh, admin: User, busy: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with without_controller(mesh, "n3", tmp_path_factory.mktemp("n3")) as third, ExitStack() as pods:
        with controller(third):
            program = pods.enter_context(third.running(str(busy), "paced"))
        pods.enter_context(running_pod(admin, NAMESPACE, "upgraded", app="upgraded", node="n3", pid=program.pid))
        name = admin.made(request(target={"podName": "upgraded"}, period="100ms"))["metadata"]["name"]

        def told() -> bool:
            message = condition(admin.get("TraceRequest", NAMESPACE, name).body, "Complete").get("message", "")
            return "0 of 1 pods done; 1 wait: no controller of node n3 is running" in message

        eventually(told, "the reason")
        with controller(third):
            body = finished(admin, name)
    assert condition(body, "Complete")["reason"] == "Decoded", body["status"]
    (session,) = sessions_of(admin, body)
    eventually(lambda: len(events_of(admin, session)) >= 3, "events")
    assert ("Normal", "NodeNotFound") in events_of(admin, session)


def test_a_node_without_a_controller_is_not_waited_for_for_ever(
    operator: Operator, admin: User, elsewhere: str
) -> None:
    made_pod(admin, elsewhere, "web-0", node=made_node(admin, "east"))
    with operator.having(NODE_PATIENCE_S="1"):
        body = finished(admin, admin.made(request(elsewhere))["metadata"]["name"], elsewhere)
    assert condition(body, "Failed")["reason"] == "NodeNotFound"


@pytest.mark.usefixtures("operator", "pod")
def test_an_api_server_that_dies_changes_nothing(
    mesh: AskedMesh, api_server: ApiServer, admin: User, target: Process
) -> None:
    known = ids(mesh)
    name = admin.made(request(period="3s"))["metadata"]["name"]
    mesh.await_recording(target.pid)
    api_server.kill()
    # The recording goes on, and ends, while nobody can be told.
    eventually(lambda: recorded(mesh, known), "the recording to be over")
    api_server.start()
    assert_recorded_once(mesh, admin, finished(admin, name), known)
    # And who was connected before takes the next request.
    known = ids(mesh)
    assert_recorded_once(mesh, admin, finished(admin, admin.made(request(period="100ms"))["metadata"]["name"]), known)


@pytest.mark.usefixtures("operator", "pod")
def test_what_was_made_while_the_operator_could_not_watch_is_recorded(
    mesh: AskedMesh, api_server: ApiServer, admin: User
) -> None:
    known = ids(mesh)
    # The changes are forgotten before the operator is back: it has to look at what there is.
    with api_server.elsewhere() as other:
        name = other.made(request(period="200ms"))["metadata"]["name"]
        withdrawn = other.made(request(period="60s"))["metadata"]["name"]
        assert other.delete("TraceRequest", NAMESPACE, withdrawn).status == 200
    assert_recorded_once(mesh, admin, finished(admin, name), known)


def recorded(mesh: AskedMesh, known: set[str]) -> bool:
    return any(state == "STATE_STORED" for identity, state in mesh.recorded().items() if identity not in known)


@pytest.mark.usefixtures("pod")
@pytest.mark.parametrize("seen", ["at once", "while recording"])
def test_an_operator_that_dies_is_followed_by_another(
    mesh: AskedMesh, operator: Operator, admin: User, target: Process, seen: str
) -> None:
    known = ids(mesh)
    name = admin.made(request(period="2s"))["metadata"]["name"]
    if seen == "while recording":
        mesh.await_recording(target.pid)
    operator.kill()
    operator.start()
    assert_recorded_once(mesh, admin, finished(admin, name), known)


def test_operators_that_die_between_rounds_of_a_pod_are_followed_by_others(
    mesh: AskedMesh, operator: Operator, admin: User, changing: Path
) -> None:
    known = ids(mesh)
    with operator.having(MIN_GAIN="1e-9", MIN_GAIN_PER_CORE_SECOND="1e-9"), ExitStack() as pods:
        program = pods.enter_context(mesh.running(str(changing)))
        app = changing.name
        pods.enter_context(running_pod(admin, NAMESPACE, app, app=app, node=default_node(), pid=program.pid))
        target = {"selector": {"matchLabels": {"app": app}}}
        made = admin.made(request(target=target, purpose="Profiling", rounds=3, period="700ms"))
        name = made["metadata"]["name"]

        def rounds() -> list[Object]:
            found: list[Object] = (admin.get("TraceRequest", NAMESPACE, name).body.get("status") or {}).get(
                "rounds", []
            )
            return found

        for number in (2, 3):
            eventually(lambda number=number: len(rounds()) >= number, f"round {number} to be chosen")  # type: ignore[misc]
            operator.kill()
            chosen = rounds()
            operator.start()
            eventually(lambda number=number: "next" in rounds()[number - 1], f"the end of round {number}")  # type: ignore[misc]
            # The next one began no other rounds than were chosen.
            assert [one["session"] for one in rounds()][: len(chosen)] == [one["session"] for one in chosen]
        body = finished(admin, name)
    assert_rounds_of_their_own(mesh, admin, body, known)
    assert [(one["podName"], one["periodMilliseconds"], one["next"]) for one in body["status"]["rounds"]] == [
        (app, 700, "Replica"),
        (app, 700, "Longer"),
        (app, 1400, "Stop"),
    ]


def test_a_recording_whose_operator_died_is_stopped_by_the_next_one(
    mesh: AskedMesh, operator: Operator, admin: User, pod: str, target: Process
) -> None:
    known = ids(mesh)
    name = admin.made(request(period="60s"))["metadata"]["name"]
    mesh.await_recording(target.pid)
    operator.kill()
    admin.delete("TraceRequest", NAMESPACE, name)
    # It stays until somebody has stopped what was begun for it.
    assert "deletionTimestamp" in admin.get("TraceRequest", NAMESPACE, name).body["metadata"]
    operator.start()
    eventually(lambda: admin.get("TraceRequest", NAMESPACE, name).status == 404, "its end")
    page = mesh.recorder(target.pid)
    assert page is not None and page.state != State.ACTIVE
    assert len(ids(mesh) - known) == 1


def test_of_two_operators_one_leads(mesh: AskedMesh, operator: Operator, admin: User, pod: str) -> None:
    second = Operator(mesh, operator.kubeconfig)
    second.start()
    try:
        known = ids(mesh)
        first_name = admin.made(request(period="200ms"))["metadata"]["name"]
        assert_recorded_once(mesh, admin, finished(admin, first_name), known)
        # The leader ends in order; the other one takes over.
        assert operator.process is not None
        operator.process.send_signal(signal.SIGTERM)
        assert operator.process.wait(PATIENCE_S) == 0
        known = ids(mesh)
        second_name = admin.made(request(period="200ms"))["metadata"]["name"]
        assert_recorded_once(mesh, admin, finished(admin, second_name), known)
    finally:
        second.kill()
        operator.start()
