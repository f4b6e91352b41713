"""Which pods a TraceRequest means, and which of them are recorded."""

from __future__ import annotations

import time

import pytest
from permille.mesh.config import default_node

from tests.kubernetes.api_server import User, eventually
from tests.kubernetes.operator_process import Operator
from tests.kubernetes.pods import made_node, made_pod
from tests.kubernetes.trace_requests import NAMESPACE, accepted, condition, finished, request
from tests.processes import PATIENCE_S, await_true

pytestmark = pytest.mark.slow


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
