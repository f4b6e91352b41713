"""The operator between a real API server and a real mesh: from a TraceRequest to what the program did, whoever dies."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from permille.client import Client, wish
from permille.controller.domain.vpt_layout import State
from permille.coverage.domain.kubernetes.conditions import from_timestamp
from permille.mesh.config import default_node
from permille.mesh.discovery import resolve
from permille.mesh.etcd import Etcd

from tests.conftest import (
    BIN,
    PATIENCE_S,
    Process,
    assert_did_its_work,
    assert_whole,
    await_true,
    child,
)
from tests.kubernetes.api_server import ApiServer, Object, User, eventually
from tests.kubernetes.asked_mesh import AskedMesh, new_asked_mesh
from tests.kubernetes.pods import made_node, made_pod, running_pod

pytestmark = pytest.mark.slow
NAMESPACE = "shop"
_number = itertools.count()


@dataclass
class Operator:
    """`permille-operator` as the service account that deploy/ gives it."""

    mesh: AskedMesh
    kubeconfig: Path
    process: Process | None = None
    variables: dict[str, str] = field(default_factory=dict)
    _keeper: threading.Thread | None = None

    def start(self) -> None:
        """Begins; it may take a moment until it leads.

        A kubelet starts it again when it ends by an error, as it does when a busy machine has let its lease go.
        """
        self._begin()
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    def kill(self) -> None:
        """kill -9; nobody starts it again."""
        while self.process is not None and self._keeper is not None and self._keeper.is_alive():
            self.process.kill()
            self._keeper.join(0.1)

    def _begin(self) -> None:
        environment = {
            **self.mesh.environment,
            "KUBECONFIG": str(self.kubeconfig),
            "PERMILLE_LEASE_TTL_S": "5",
            "PERMILLE_METRICS": "off",
            # Nothing brings so much: of rounds there are two, after which that can be told.
            "PERMILLE_OPERATOR_MIN_GAIN": "1e9",
            **self.variables,
        }
        with self.log.open("a") as log:
            command = [BIN / "permille-operator"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)

    def _keep(self) -> None:
        while self.process is not None and self.process.wait() == 1:
            self._begin()

    @property
    def log(self) -> Path:
        """What all of its lives wrote."""
        return self.mesh.state / "operator.log"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedMesh]:
    """One whose coverage has room for one of the programs at a time in the namespace."""
    started = new_asked_mesh(
        tmp_path_factory.mktemp("mesh"), PERMILLE_COVERAGE_QUOTAS=f'{{"{NAMESPACE}": {{"cores": 3}}}}'
    )
    try:
        started.start()
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def operator(mesh: AskedMesh, api_server: ApiServer) -> Iterator[Operator]:
    """A running one."""
    admin = api_server.user("admin")
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kubeconfig = api_server.kubeconfig(api_server.service_account("permille", "permille-operator"))
    running = Operator(mesh, kubeconfig)
    running.start()
    yield running
    running.kill()
    print(running.log.read_text()[-6000:])


@pytest.fixture(scope="module")
def target(mesh: AskedMesh, busy: Path) -> Iterator[Process]:
    """A program that executes little."""
    with mesh.running(str(busy), "paced") as process:
        yield process


@pytest.fixture(scope="module")
def pod(api_server: ApiServer, target: Process) -> Iterator[str]:
    """A pod of this machine with the program in its container; its name."""
    admin = api_server.user("admin")
    if NAMESPACE not in [one["metadata"]["name"] for one in admin.list("Namespace", "")]:
        admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    with running_pod(admin, NAMESPACE, "web-0", app="web", node=default_node(), pid=target.pid) as name:
        yield name


@pytest.fixture
def elsewhere(operator: Operator, admin: User) -> str:
    """A namespace of the test's own, with an operator that looks after it."""
    name = f"elsewhere-{next(_number)}"
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def accepted(admin: User, namespace: str, **spec: Any) -> Object:
    """A request of pods that only the API server knows, when its pods have been chosen; it is withdrawn."""
    name = admin.made(request(namespace, **spec))["metadata"]["name"]

    def said() -> bool:
        return bool(condition(admin.get("TraceRequest", namespace, name).body, "Accepted"))

    eventually(said, "an answer")
    body = admin.get("TraceRequest", namespace, name).body
    assert condition(body, "Accepted")["reason"] == "Accepted", body["status"]
    admin.delete("TraceRequest", namespace, name)
    eventually(lambda: admin.get("TraceRequest", namespace, name).status == 404, "its end")
    return body


def request(namespace: str = NAMESPACE, **spec: Any) -> Object:
    return {
        "apiVersion": "permille.dev/v1alpha1",
        "kind": "TraceRequest",
        "metadata": {"name": f"request-{next(_number)}", "namespace": namespace},
        "spec": {"target": {"selector": {"matchLabels": {"app": "web"}}}, **spec},
    }


def condition(body: Object, kind: str) -> Object:
    """A condition of an object; {} when it has none of this kind."""
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})


def finished(admin: User, name: str, namespace: str = NAMESPACE) -> Object:
    """The request when it is over."""

    def over() -> bool:
        body = admin.get("TraceRequest", namespace, name).body
        return any(condition(body, kind).get("status") == "True" for kind in ("Complete", "Failed"))

    eventually(over, f"the end of {name}")
    return admin.get("TraceRequest", namespace, name).body


def sessions_of(admin: User, body: Object) -> list[Object]:
    """The TraceSessions of a request."""
    uid = body["metadata"]["uid"]
    return [one for one in admin.list("TraceSession", NAMESPACE) if one["spec"]["requestUID"] == uid]


def events_of(admin: User, body: Object) -> list[tuple[str, str]]:
    """Type and reason of the events about an object."""
    answer = admin.call("GET", f"/api/v1/namespaces/{NAMESPACE}/events")
    uid = body["metadata"]["uid"]
    return [(one["type"], one["reason"]) for one in answer.body["items"] if one["involvedObject"].get("uid") == uid]


def assert_recorded_once(mesh: AskedMesh, admin: User, body: Object, known: set[str]) -> str:
    """The request is complete, and exactly one session was recorded and decoded for it; its id."""
    assert condition(body, "Complete")["reason"] == "Decoded", body["status"]
    (session,) = sessions_of(admin, body)
    (recording,) = session["status"]["recordings"]
    assert session["spec"]["nodeName"] == default_node()
    assert session["metadata"]["ownerReferences"][0]["uid"] == body["metadata"]["uid"]
    new = ids(mesh) - known
    assert new == {recording.rpartition("/")[2]}
    (identity,) = new
    assert_did_its_work(assert_whole(mesh, identity))
    return str(identity)


def ids(mesh: AskedMesh) -> set[str]:
    return set(mesh.recorded())


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
    eventually(lambda: len(events_of(admin, session)) >= 2, "events of the session")
    assert sorted(events_of(admin, session)) == [("Normal", "Decoded"), ("Normal", "Started")]


@contextmanager
def another_node(mesh: AskedMesh, node: str, state: Path) -> Iterator[AskedMesh]:
    """A node of the same mesh: a controller with programs of its own."""
    with without_controller(mesh, node, state) as other, controller(other):
        yield other


@contextmanager
def without_controller(mesh: AskedMesh, node: str, state: Path) -> Iterator[AskedMesh]:
    """A node of the same mesh with programs of its own."""
    etcd = (mesh.state / "etcd" / "endpoint").read_text().strip()
    other = new_asked_mesh(
        state, PERMILLE_NODE=node, PERMILLE_ETCD=etcd, PERMILLE_STORE=f"file://{mesh.state / 'store'}"
    )
    try:
        yield other
    finally:
        other.close()


@contextmanager
def controller(node: AskedMesh) -> Iterator[None]:
    """The controller of such a node, when it is known."""
    command = [str(BIN / "permille-controller"), "--state-dir", str(node.state)]
    with (
        (node.state / "controller.log").open("a") as log,
        child(command, env=node.environment, stdout=log, stderr=log),
    ):
        name = node.variables["PERMILLE_NODE"]
        eventually(lambda: name in asyncio.run(controllers(node)), f"the controller of {name}")
        yield


async def controllers(node: AskedMesh) -> set[str]:
    """The nodes whose controllers etcd knows."""
    etcd = Etcd([node.variables["PERMILLE_ETCD"]])
    try:
        return {endpoint.instance for endpoint in await resolve(etcd, "controller")}
    finally:
        await etcd.close()


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


def test_a_profile_is_a_sample_spread_over_versions_zones_and_nodes(admin: User, elsewhere: str) -> None:
    nodes = [made_node(admin, zone) for zone in ("east", "east", "west")]
    for number in range(9):
        made_pod(admin, elsewhere, f"web-{number}", node=nodes[number % 3], revision="new" if number == 8 else "old")
    status = accepted(admin, elsewhere, purpose="Profiling")["status"]
    # The square root, and a little more for the priority; nobody knows what they write, so none beside another.
    assert status["replicas"] == len({one["nodeName"] for one in status["sessions"]}) == 3
    assert "web-8" in [one["podName"] for one in status["sessions"]]
    assert [one["reason"] for one in status["sessions"]] == [
        f"{number} of 4: spread over versions, zones and nodes" for number in (1, 2, 3)
    ]
    assert sum(one["pods"] for one in status["notChosen"]) == 6
    assert {name for one in status["notChosen"] for name in one["podNames"]} | {
        one["podName"] for one in status["sessions"]
    } == {f"web-{number}" for number in range(9)}
    message = condition({"status": status}, "Accepted")["message"]
    assert message.startswith("3 of 9 running pods on 3 nodes; ")


def test_an_anomaly_concerns_every_pod(admin: User, elsewhere: str) -> None:
    node = made_node(admin, "east")
    for number in range(9):
        made_pod(admin, elsewhere, f"web-{number}", node=node)
    status = accepted(admin, elsewhere, purpose="Anomaly")["status"]
    assert {one["podName"] for one in status["sessions"]} == {f"web-{number}" for number in range(9)}
    assert {one["reason"] for one in status["sessions"]} == {"the target means it"}
    assert not status["notChosen"]
    two = accepted(admin, elsewhere, purpose="Anomaly", maxReplicas=2)["status"]
    assert two["replicas"] == 2
    assert [(one["reason"], one["pods"]) for one in two["notChosen"]] == [("maxReplicas is 2", 7)]


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


def test_many_pods_that_end_at_once_are_written_together(admin: User, elsewhere: str) -> None:
    pods = 60
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy", "metadata": {"name": "default"}}
    admin.made(
        {**policy, "metadata": {"name": "default", "namespace": elsewhere}, "spec": {"quotas": {"maxReplicas": 1000}}}
    )
    # The node is real, its containers are not: each fails at once.
    for number in range(pods):
        made_pod(admin, elsewhere, f"web-{number}", node=default_node())
    made = admin.made(request(elsewhere, purpose="Anomaly"))
    begin = time.monotonic()
    versions: set[str] = set()

    def over() -> bool:
        body = admin.get("TraceRequest", elsewhere, made["metadata"]["name"]).body
        versions.add(body["metadata"]["resourceVersion"])
        return condition(body, "Failed").get("status") == "True"

    await_true(over, PATIENCE_S, "the end of all")
    status = admin.get("TraceRequest", elsewhere, made["metadata"]["name"]).body["status"]
    assert (status["finishedReplicas"], status["failedReplicas"]) == (pods, pods)
    # Made, held by a finalizer, accepted, begun and ended; between them one write a second.
    assert len(versions) <= 8 + time.monotonic() - begin
    assert len(admin.list("TraceSession", elsewhere)) == pods


@pytest.mark.usefixtures("operator")
def test_rounds_go_from_pod_to_pod_until_another_one_is_not_worth_it(mesh: AskedMesh, admin: User, busy: Path) -> None:
    known = ids(mesh)
    with ExitStack() as pods:
        for number in range(3):
            program = pods.enter_context(mesh.running(str(busy), "paced"))
            name = f"round-{number}"
            pods.enter_context(running_pod(admin, NAMESPACE, name, app="rounds", node=default_node(), pid=program.pid))
        target = {"selector": {"matchLabels": {"app": "rounds"}}}
        made = admin.made(request(target=target, purpose="Profiling", rounds=3, period="200ms"))
        body = finished(admin, made["metadata"]["name"])
    complete, status = condition(body, "Complete"), body["status"]
    assert complete["reason"] == "Decoded", status
    assert complete["message"].startswith("2 of 2 pods recorded and decoded; another pod: ")
    assert complete["message"].endswith(" for each MiB: 1e+09 are wanted")
    assert (status["replicas"], status["finishedReplicas"], len(status["sessions"])) == (2, 2, 3)
    assert [one["session"] for one in status["rounds"]] == [one["name"] for one in status["sessions"][:2]]
    assert status["rounds"][0]["reason"] == "one session alone does not tell what is missing"
    # The third had no turn.
    assert len(sessions_of(admin, body)) == len(ids(mesh) - known) == 2


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
    operator.kill()
    operator.variables = {"PERMILLE_OPERATOR_NODE_PATIENCE_S": "1"}
    operator.start()
    try:
        body = finished(admin, admin.made(request(elsewhere))["metadata"]["name"], elsewhere)
    finally:
        operator.kill()
        operator.variables = {}
        operator.start()
    assert condition(body, "Failed")["reason"] == "NodeNotFound"


def test_what_is_not_there_is_waited_for_and_says_so(operator: Operator, admin: User, pod: str) -> None:
    made = admin.made(request(target={"podName": "web-7"}))
    name = made["metadata"]["name"]

    def waits() -> bool:
        return condition(admin.get("TraceRequest", NAMESPACE, name).body, "Accepted").get("reason") == "NoInstance"

    eventually(waits, "the reason")
    accepted = condition(admin.get("TraceRequest", NAMESPACE, name).body, "Accepted")
    assert accepted["status"] == "False" and "no such pod is in this namespace" in accepted["message"]
    admin.delete("TraceRequest", NAMESPACE, name)
    eventually(lambda: admin.get("TraceRequest", NAMESPACE, name).status == 404, "its end")


@pytest.mark.usefixtures("operator", "pod")
def test_a_request_means_pods_of_its_own_namespace_alone(admin: User) -> None:
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "neighbour"}})
    body = request()
    body["metadata"]["namespace"] = "neighbour"
    name = admin.made(body)["metadata"]["name"]

    def told() -> bool:
        return bool(condition(admin.get("TraceRequest", "neighbour", name).body, "Accepted"))

    eventually(told, "an answer")
    accepted = condition(admin.get("TraceRequest", "neighbour", name).body, "Accepted")
    assert accepted["message"] == "nothing to record yet: no such pod is in this namespace"


def test_labels_that_cannot_be_are_refused(admin: User, elsewhere: str) -> None:
    target = {"selector": {"matchLabels": {"app of mine": "web"}}}
    body = finished(admin, admin.made(request(elsewhere, target=target))["metadata"]["name"], elsewhere)
    failed = condition(body, "Failed")
    assert failed["reason"] == "SelectorInvalid" and "'app of mine=web' is no condition" in failed["message"]


def test_a_set_based_selector_chooses_the_pods(admin: User, elsewhere: str) -> None:
    node = made_node(admin, "east")
    for name, tier in (("front", "front"), ("back", "back"), ("batch", "batch")):
        made_pod(admin, elsewhere, name, node=node, tier=tier)
    expressions = [{"key": "tier", "operator": "NotIn", "values": ["batch"]}, {"key": "app", "operator": "Exists"}]
    body = accepted(admin, elsewhere, purpose="Anomaly", target={"selector": {"matchExpressions": expressions}})
    assert {one["podName"] for one in body["status"]["sessions"]} == {"front", "back"}


def test_a_finished_request_goes_when_its_time_is_over(operator: Operator, admin: User, pod: str) -> None:
    made = admin.made(request(period="100ms", ttlSecondsAfterFinished=0))
    name = made["metadata"]["name"]
    eventually(lambda: admin.get("TraceRequest", NAMESPACE, name).status == 404, "its end")


def test_a_quota_is_a_wall(operator: Operator, admin: User, pod: str) -> None:
    metadata = {"name": "default", "namespace": NAMESPACE}
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy", "metadata": metadata}
    admin.made({**policy, "spec": {"quotas": {"maxPeriod": "1s"}}})
    try:
        body = finished(admin, admin.made(request(period="2s"))["metadata"]["name"])
        failed = condition(body, "Failed")
        assert (failed["status"], failed["reason"]) == ("True", "QuotaPeriod")
        assert "a period of 2000 ms is more than this namespace allows (1000 ms)" in failed["message"]
    finally:
        assert admin.delete("TracePolicy", NAMESPACE, "default").status == 200


def test_what_others_of_the_namespace_take_is_waited_for(
    mesh: AskedMesh, operator: Operator, admin: User, pod: str, busy: Path
) -> None:
    with mesh.running(str(busy), "paced") as other, Client(mesh.endpoint("coverage").address) as client:
        taking = client.start(wish(pids=[other.pid], period_ms=60_000, namespace=NAMESPACE))
        made = admin.made(request(period="100ms"))

        def waits() -> bool:
            return [condition(one, "Complete").get("reason") for one in sessions_of(admin, made)] == ["QuotaInUse"]

        eventually(waits, "the quota in use")
        client.cancel(taking.name)
        body = finished(admin, made["metadata"]["name"])
    assert condition(body, "Complete")["reason"] == "Decoded", body["status"]


def test_a_policys_quota_of_cores_bytes_and_decoding_reaches_coverage(
    mesh: AskedMesh, operator: Operator, admin: User, pod: str
) -> None:
    metadata = {"name": "default", "namespace": NAMESPACE}
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy", "metadata": metadata}
    # Less than the mesh allows the namespace, and less than the program has threads or writes.
    quotas = {"cores": 2, "bytesPerSecond": "1", "decodeMilliseconds": 60_000}
    admin.made({**policy, "spec": {"quotas": quotas}})
    try:
        body = finished(admin, admin.made(request(period="100ms"))["metadata"]["name"])
    finally:
        assert admin.delete("TracePolicy", NAMESPACE, "default").status == 200
    asked = {"cores": 2, "bytes_per_second": 1, "decode_ms": 60_000}
    assert body["status"]["plan"]["quota"] == asked
    (session,) = sessions_of(admin, body)
    assert session["spec"]["quota"] == asked
    failed = condition(body, "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "NothingWithinQuota")
    assert "the quota is" in failed["message"]


@pytest.mark.usefixtures("operator", "pod")
def test_how_long_a_recording_is_kept_is_the_policys(mesh: AskedMesh, admin: User) -> None:
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy"}
    retention = {"ttlSecondsAfterRecorded": 7 * 24 * 3600}
    metadata = {"name": "default", "namespace": NAMESPACE}
    admin.made({**policy, "metadata": metadata, "spec": {"retention": retention}})
    try:
        body = finished(admin, admin.made(request(period="100ms"))["metadata"]["name"])
    finally:
        assert admin.delete("TracePolicy", NAMESPACE, "default").status == 200
    (session,) = sessions_of(admin, body)
    assert session["spec"].items() >= retention.items()
    # With it the decoder knows when to delete it (services/decoder/tests/test_session_expiry.py).
    (recording,) = session["status"]["recordings"]
    manifest = mesh.state / "store" / "raw" / recording.rpartition("/")[2] / "manifest.json"
    assert json.loads(manifest.read_text())["retention_s"] == retention["ttlSecondsAfterRecorded"]


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


POLICY, BINDING, RIGHTS = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "tracerequests.permille.dev"


def test_nothing_is_accepted_while_nobody_asks_for_rights(operator: Operator, admin: User, pod: str) -> None:
    binding = admin.get(BINDING, "", RIGHTS).body
    assert admin.delete(BINDING, "", RIGHTS).status == 200
    made = admin.made(request(period="100ms"))
    name = made["metadata"]["name"]
    try:
        assert "there is no binding" in said_of_rights(admin, name)
    finally:
        await_next_second(made)
        admin.made({**binding, "metadata": {"name": RIGHTS}})
    assert condition(finished(admin, name), "Failed")["reason"] == "NotChecked"


@pytest.mark.usefixtures("operator", "pod")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"matchConditions": [{"name": "never", "expression": "false"}]}, "has conditions or parameters of its own"),
        ({"validations": [{"expression": "true"}]}, "does not ask what it should"),
    ],
)
def test_a_policy_that_asks_for_less_is_as_none(admin: User, changed: Object, told: str) -> None:
    before = admin.get(POLICY, "", RIGHTS).body["spec"]
    assert admin.patch(POLICY, "", RIGHTS, {"spec": changed}).status == 200
    # Of the second in which it changed nobody would know.
    await_next_second(admin.made(request(period="100ms")))
    made = admin.made(request(period="100ms"))
    name = made["metadata"]["name"]
    try:
        assert told in said_of_rights(admin, name)
    finally:
        await_next_second(made)
        assert admin.patch(POLICY, "", RIGHTS, {"spec": {key: before.get(key) for key in changed}}).status == 200
    # It is older than the change that made the policy whole again.
    assert condition(finished(admin, name), "Failed")["reason"] == "NotChecked"


@pytest.mark.usefixtures("operator", "pod")
def test_of_the_second_in_which_the_policy_was_made_nobody_knows(admin: User) -> None:
    binding = admin.get(BINDING, "", RIGHTS).body
    while True:
        assert admin.delete(BINDING, "", RIGHTS).status == 200
        bound = admin.made({**binding, "metadata": {"name": RIGHTS}})
        made = admin.made(request(period="100ms"))
        if made["metadata"]["creationTimestamp"] == bound["metadata"]["creationTimestamp"]:
            break
        admin.delete("TraceRequest", NAMESPACE, made["metadata"]["name"])
    assert condition(finished(admin, made["metadata"]["name"]), "Failed")["reason"] == "NotChecked"


def said_of_rights(admin: User, name: str) -> str:
    """Why nothing is accepted, when it is said."""

    def refused() -> bool:
        body = admin.get("TraceRequest", NAMESPACE, name).body
        return condition(body, "Accepted").get("reason") == "AdmissionPolicyMissing"

    eventually(refused, "the reason")
    return str(condition(admin.get("TraceRequest", NAMESPACE, name).body, "Accepted")["message"])


def await_next_second(made: Object) -> None:
    """As the API server tells time, in whole seconds: what was made before has not been checked."""
    next_second = from_timestamp(made["metadata"]["creationTimestamp"]) + timedelta(seconds=1)
    eventually(lambda: datetime.now(UTC) >= next_second, "the next second")
