"""What a namespace's TracePolicy and the mesh's quotas allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from permille.client import Client, wish

from tests.kubernetes.api_server import User, eventually
from tests.kubernetes.asked_mesh import AskedMesh
from tests.kubernetes.operator_process import Operator
from tests.kubernetes.pods import made_node, made_pod
from tests.kubernetes.trace_requests import NAMESPACE, condition, described_status, finished, request, sessions_of

pytestmark = pytest.mark.slow


def test_a_quota_is_a_wall(operator: Operator, admin: User, pod: str) -> None:
    metadata = {"name": "default", "namespace": NAMESPACE}
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy", "metadata": metadata}
    admin.made({**policy, "spec": {"quotas": {"maxPeriod": "1s"}}})
    try:
        body = finished(admin, admin.made(request(period="2s"))["metadata"]["name"])
        failed = condition(body, "Failed")
        assert (failed["status"], failed["reason"]) == ("True", "QuotaPeriod")
        assert "a period of 2000 ms is more than this namespace allows (1000 ms)" in failed["message"]
        # What is refused stays for as long as the policy says, too.
        admin.patch("TracePolicy", NAMESPACE, "default", {"spec": {"retention": {"ttlSecondsAfterFinished": 0}}})
        name = admin.made(request(period="2s"))["metadata"]["name"]
        eventually(lambda: admin.get("TraceRequest", NAMESPACE, name).status == 404, "the refused request to go")
    finally:
        assert admin.delete("TracePolicy", NAMESPACE, "default").status == 200


def test_who_says_no_number_gets_no_more_than_is_allowed(
    operator: Operator, admin: User, mesh: AskedMesh, pod: str
) -> None:
    metadata = {"name": "default", "namespace": NAMESPACE}
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy", "metadata": metadata}
    admin.made(
        {**policy, "spec": {"defaults": {"budget": "64Mi"}, "quotas": {"maxPeriod": "150ms", "maxBudget": "8Mi"}}}
    )
    try:
        body = finished(admin, admin.made(request())["metadata"]["name"])
        assert condition(body, "Complete")["reason"] == "Decoded", body["status"]
        (recorded,) = sessions_of(admin, body)
        (session,) = recorded["status"]["recordings"]
        known = mesh.report(session.rpartition("/")[2])["session"]
        assert 0 < known["period_ms"] <= 150
        assert recorded["spec"]["budgetBytes"] == 8 << 20
    finally:
        assert admin.delete("TracePolicy", NAMESPACE, "default").status == 200


def test_a_place_that_the_server_refuses_fails_and_the_others_go_on(
    operator: Operator, admin: User, mesh: AskedMesh, pod: str
) -> None:
    made_pod(admin, NAMESPACE, "web-1", node=made_node(admin, "east"), app="web")
    rule = {
        "apiGroups": ["permille.dev"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["tracesessions"],
    }
    no = {"expression": "object.spec.podName != 'web-1'", "message": "not web-1"}
    group, name = "admissionregistration.k8s.io/v1", {"name": "no-web-1"}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [no]}
    admin.made({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": policy})
    bound = {"policyName": "no-web-1", "validationActions": ["Deny"]}
    admin.made({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": name, "spec": bound})
    texts = ("requestName", "requestUID", "requestID", "nodeName", "podUID", "container", "containerID")
    spec = {**dict.fromkeys(texts, "x"), "podName": "web-1", "purpose": "OnDemand", "periodMilliseconds": 1}
    tried = {"apiVersion": "permille.dev/v1alpha1", "kind": "TraceSession", "metadata": {"name": "tried"}}
    path = f"/apis/permille.dev/v1alpha1/namespaces/{NAMESPACE}/tracesessions?dryRun=All"
    body = {**tried, "spec": {**spec, "budgetBytes": 0}}
    try:
        # A new policy is in force a moment after it was made.
        eventually(lambda: "not web-1" in str(admin.call("POST", path, body).body), "the policy to be in force")
        ended = finished(admin, admin.made(request(period="200ms", maxReplicas=2))["metadata"]["name"])
        complete = condition(ended, "Complete")
        assert (complete["status"], complete["reason"]) == ("True", "PartlyDecoded"), ended["status"]
        assert "1 of 2 pods failed" in complete["message"]
        assert "not web-1" in complete["message"]
    finally:
        admin.delete("ValidatingAdmissionPolicyBinding", "", "no-web-1")
        admin.delete("ValidatingAdmissionPolicy", "", "no-web-1")
        admin.delete("Pod", NAMESPACE, "web-1")


def test_so_many_requests_are_active_at_once_and_the_next_begins_when_one_ends(admin: User, elsewhere: str) -> None:
    policy = {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy"}
    metadata = {"name": "default", "namespace": elsewhere}
    admin.made({**policy, "metadata": metadata, "spec": {"quotas": {"activeRequests": 2}}})
    names = [admin.made(request(elsewhere))["metadata"]["name"] for _ in range(8)]

    def reasons() -> dict[str, str]:
        bodies = {name: admin.get("TraceRequest", elsewhere, name).body for name in names}
        return {name: condition(body, "Accepted").get("reason", "") for name, body in bodies.items()}

    eventually(lambda: set(reasons().values()) == {"NoInstance"}, "all to wait for a pod")
    # Now each may begin at the same moment; no controller is on this node, so those that do stay active.
    made_pod(admin, elsewhere, "web-0", node=made_node(admin, "east"))
    for _ in names[2:]:
        eventually(lambda: "NoInstance" not in reasons().values(), "an answer to each")
        active = [name for name, reason in reasons().items() if reason == "Accepted"]
        assert len(active) == 2, reasons()
        waiting = next(name for name, reason in reasons().items() if reason == "QuotaActiveRequests")
        told = condition(admin.get("TraceRequest", elsewhere, waiting).body, "Accepted")["message"]
        assert told.startswith("2 requests of this namespace are active, as many as its TracePolicy allows")
        names.remove(active[0])
        assert admin.delete("TraceRequest", elsewhere, active[0]).status == 200
        eventually(lambda: list(reasons().values()).count("Accepted") == 2, "the next one to begin")


def test_what_others_of_the_namespace_take_is_waited_for(
    mesh: AskedMesh, operator: Operator, admin: User, pod: str, busy: Path
) -> None:
    with mesh.running(str(busy), "paced") as other, Client(mesh.endpoint("coverage").address) as client:
        taking = client.start(wish(pids=[other.pid], period_ms=60_000, namespace=NAMESPACE))
        made = admin.made(request(period="100ms"))

        def waits() -> bool:
            return [condition(one, "Complete").get("reason") for one in sessions_of(admin, made)] == ["QuotaInUse"]

        eventually(waits, "the quota in use")
        (session,) = sessions_of(admin, made)
        assert session["status"]["stage"] in described_status(admin, "tracesessions")["stage"]["description"]
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
