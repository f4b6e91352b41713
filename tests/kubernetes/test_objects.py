"""TraceRequest, TraceSession and TracePolicy, as a real API server takes, completes and refuses them."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from tests.kubernetes.api_server import ApiServer, Object, User, eventually

pytestmark = pytest.mark.slow
_number = itertools.count()
PROFILE = {"purpose": "Profiling", "target": {"selector": {"matchLabels": {"app": "web"}}}}
SESSION = {
    "requestName": "r",
    "requestUID": "u",
    "requestID": "u.p",
    "nodeName": "n",
    "podName": "p",
    "podUID": "p",
    "container": "c",
    "containerID": "0123456789ab",
}


def request(namespace: str = "default", **spec: Any) -> Object:
    return {
        "apiVersion": "permille.dev/v1alpha1",
        "kind": "TraceRequest",
        "metadata": {"name": f"request-{next(_number)}", "namespace": namespace},
        "spec": {"target": {"podName": "web-0"}, **spec},
    }


def policy(name: str = "default", namespace: str = "default", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "permille.dev/v1alpha1", "kind": "TracePolicy", "metadata": metadata, "spec": spec}


def namespace_of(admin: User, name: str) -> str:
    admin.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def test_a_request_gets_its_purpose_by_default(admin: User) -> None:
    assert admin.made(request())["spec"] == {"target": {"podName": "web-0"}, "purpose": "OnDemand"}


@pytest.mark.parametrize(
    "spec",
    [
        {"period": "500ms", "budget": "64Mi", "maxReplicas": 3, "purpose": "Anomaly", "ttlSecondsAfterFinished": 0},
        {"period": "60s", "budget": "1048576"},
        {"purpose": "Anomaly", "priority": 0},
        {
            "target": {"selector": {"matchLabels": {"app": "web"}}},
            "purpose": "Profiling",
            "priority": 100,
            "rounds": 64,
        },
        {"target": {"selector": {"matchLabels": {"app": "web"}}, "container": "nginx"}},
        {"target": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}}},
    ],
)
def test_what_a_user_may_write(admin: User, spec: Object) -> None:
    made = admin.made(request(**spec))
    assert {key: made["spec"][key] for key in spec} == spec


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"target": {}}, "name one pod (podName), or select pods by their labels (selector), not both"),
        ({"target": {"podName": "a", "selector": {"matchLabels": {"a": "b"}}}}, "not both"),
        ({"target": {"selector": {}}}, "an empty selector would mean every pod of the namespace"),
        ({"target": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}, "In and NotIn need values"),
        ({"target": {"selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}}, '"DoesNotExist"'),
        ({"target": {"selector": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}}}, "should match"),
        ({"target": {"selector": {"matchLabels": {"app": "web,tier"}}}}, "should match"),
        ({"period": "half a second"}, "a period is a whole number of milliseconds or seconds: 500ms, 2s"),
        ({"period": "0ms"}, "a period is 1ms to 60s"),
        ({"period": "61s"}, "a period is 1ms to 60s"),
        ({"budget": "9999999999Gi"}, "a budget is a number of bytes, or of Ki, Mi or Gi: 64Mi"),
        ({"budget": "64MB"}, "a budget is a number of bytes, or of Ki, Mi or Gi: 64Mi"),
        ({"maxReplicas": 0}, "should be greater than or equal to 1"),
        ({"purpose": "Curiosity"}, 'supported values: "OnDemand", "Anomaly", "Profiling"'),
        ({"target": None}, "spec.target"),
        ({"priority": -1}, "should be greater than or equal to 0"),
        ({"priority": 101}, "should be less than or equal to 100"),
        ({"priority": "high"}, "must be of type integer"),
        ({**PROFILE, "rounds": 0}, "should be greater than or equal to 1"),
        ({**PROFILE, "rounds": 65}, "should be less than or equal to 64"),
        ({**PROFILE, "purpose": "Anomaly", "rounds": 3}, "rounds are for purpose Profiling: what an anomaly concerns"),
        (
            {**PROFILE, "target": {"podName": "a"}, "rounds": 3},
            "rounds go from pod to pod; select pods by their labels",
        ),
    ],
)
def test_what_is_refused_says_what_is_allowed(admin: User, spec: Object, told: str) -> None:
    answer = admin.create(request(**spec))
    assert answer.status == 422
    assert told in answer.message


def test_a_request_cannot_be_changed(admin: User) -> None:
    name = admin.made(request(period="1s"))["metadata"]["name"]
    answer = admin.patch("TraceRequest", "default", name, {"spec": {"period": "2s"}})
    assert answer.status == 422
    assert "cannot be changed once it is made; make another one" in answer.message


def test_a_policy_gets_its_numbers_by_default(admin: User) -> None:
    namespace = namespace_of(admin, "policy-defaults")
    assert admin.made(policy(namespace=namespace))["spec"] == {
        "defaults": {"maxReplicas": 1},
        "quotas": {"activeRequests": 4, "maxReplicas": 10, "maxPeriod": "60s"},
        "retention": {"ttlSecondsAfterFinished": 86400},
    }
    other = namespace_of(admin, "policy-weights")
    weights = admin.made(policy(namespace=other, weights={"stability": 100}))["spec"]["weights"]
    assert weights == {"priority": 50, "complexity": 30, "stability": 100}


def test_a_policy_may_bound_what_all_requests_of_its_namespace_take_together(admin: User) -> None:
    namespace = namespace_of(admin, "policy-quotas")
    quotas = {"cores": 8, "bytesPerSecond": "500Mi", "decodeMilliseconds": 60_000}
    made = admin.made(policy(namespace=namespace, quotas=quotas))["spec"]["quotas"]
    assert made == {**quotas, "activeRequests": 4, "maxReplicas": 10, "maxPeriod": "60s"}


@pytest.mark.parametrize(
    ("quotas", "told"),
    [
        ({"cores": 0}, "should be greater than or equal to 1"),
        ({"cores": 1_000_001}, "should be less than or equal to"),
        ({"cores": "8"}, "must be of type integer"),
        ({"bytesPerSecond": "500MB"}, "a rate is a number of bytes a second, or of Ki, Mi or Gi: 500Mi"),
        ({"decodeMilliseconds": 499}, "decodeMilliseconds is at least 500: no decode takes less"),
    ],
)
def test_a_quota_that_cannot_be_meant_is_refused(admin: User, quotas: Object, told: str) -> None:
    answer = admin.create(policy(quotas=quotas))
    assert answer.status == 422
    assert told in answer.message


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"quotas": {"maxPeriod": "a minute"}}, "a period is a whole number of milliseconds or seconds: 500ms, 2s"),
        ({"quotas": {"maxPeriod": "0s"}}, "a period is 1ms to 60s"),
        ({"quotas": {"maxPeriod": "61s"}}, "a period is 1ms to 60s"),
        ({"quotas": {"maxBudget": "64MB"}}, "a budget is a number of bytes, or of Ki, Mi or Gi: 64Mi"),
        ({"quotas": {"maxBudget": "0"}}, "a budget is a number of bytes, or of Ki, Mi or Gi: 64Mi"),
        ({"quotas": {"activeRequests": -1}}, "should be greater than or equal to 0"),
        ({"weights": {"priority": -1}}, "should be greater than or equal to 0"),
        ({"weights": {"complexity": 101}}, "should be less than or equal to 100"),
        ({"weights": {"stability": "much"}}, "must be of type integer"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(admin: User, spec: Object, told: str) -> None:
    answer = admin.create(policy(**spec))
    assert answer.status == 422
    assert told in answer.message


def test_a_namespace_has_one_policy(admin: User) -> None:
    answer = admin.create(policy(name="mine"))
    assert answer.status == 422
    assert "a namespace has one TracePolicy, and its name is default" in answer.message


def test_status_is_written_apart_from_the_spec(admin: User) -> None:
    metadata = {"name": "session-0", "namespace": "default"}
    session = {"apiVersion": "permille.dev/v1alpha1", "kind": "TraceSession", "metadata": metadata, "spec": SESSION}
    assert "status" not in admin.made({**session, "status": {"stage": "DONE"}})
    condition = {
        "type": "Complete",
        "status": "True",
        "reason": "Decoded",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"status": {"stage": "DONE", "conditions": [condition]}, "spec": {"nodeName": "other"}}
    written = admin.patch("TraceSession", "default", "session-0", status, part="/status").body
    assert (written["status"]["stage"], written["spec"]["nodeName"]) == ("DONE", "n")
    wrong = {"status": {"conditions": [{**condition, "status": "Maybe"}]}}
    answer = admin.patch("TraceSession", "default", "session-0", wrong, part="/status")
    assert answer.status == 422 and 'supported values: "True", "False", "Unknown"' in answer.message


def test_a_session_cannot_be_changed(admin: User) -> None:
    metadata = {"name": "session-1", "namespace": "default"}
    admin.made({"apiVersion": "permille.dev/v1alpha1", "kind": "TraceSession", "metadata": metadata, "spec": SESSION})
    for change in ({"nodeName": "other"}, {"containerID": None}, {"priority": 100}):
        answer = admin.patch("TraceSession", "default", "session-1", {"spec": change})
        assert answer.status == 422, change
    answer = admin.patch("TraceSession", "default", "session-1", {"spec": {"podName": "other"}})
    assert "a TraceSession cannot be changed; it is made by the operator" in answer.message
    assert admin.get("TraceSession", "default", "session-1").body["spec"] == SESSION
    # What users and the garbage collector write beside it is no change.
    assert admin.patch("TraceSession", "default", "session-1", {"metadata": {"labels": {"a": "b"}}}).status == 200


def table(admin: User, plural: str, namespace: str) -> list[dict[str, str]]:
    """What `kubectl get -o wide` shows: by column."""
    path = f"/apis/permille.dev/v1alpha1/namespaces/{namespace}/{plural}"
    answer = admin.call("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert answer.status == 200 and answer.body["kind"] == "Table", answer
    columns = [column["name"] for column in answer.body["columnDefinitions"]]
    return [dict(zip(columns, map(str, row["cells"]), strict=True)) for row in answer.body["rows"]]


def test_columns_are_what_kubectl_shows(admin: User) -> None:
    namespace = namespace_of(admin, "columns")
    made = admin.made(request(namespace, purpose="Anomaly", priority=7))
    name = made["metadata"]["name"]
    condition = {
        "type": "Complete",
        "status": "True",
        "reason": "PartlyDecoded",
        "message": "1 of 3 pods failed",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status: Object = {"replicas": 3, "finishedReplicas": 2, "conditions": [condition]}
    assert admin.patch("TraceRequest", namespace, name, {"status": status}, part="/status").status == 200
    (row,) = table(admin, "tracerequests", namespace)
    assert row.pop("Age")
    assert row == {
        "Name": name,
        "Purpose": "Anomaly",
        "Priority": "7",
        "Replicas": "3",
        "Done": "2",
        "Complete": "True",
        "Reason": "PartlyDecoded",
        "Failed": "None",
        "Message": "1 of 3 pods failed",
    }
    status = {"conditions": [{**condition, "type": "Failed", "reason": "QuotaPeriod"}]}
    assert admin.patch("TraceRequest", namespace, name, {"status": status}, part="/status").status == 200
    (row,) = table(admin, "tracerequests", namespace)
    assert (row["Complete"], row["Failed"]) == ("None", "QuotaPeriod")
    metadata = {"name": "s", "namespace": namespace}
    admin.made({"apiVersion": "permille.dev/v1alpha1", "kind": "TraceSession", "metadata": metadata, "spec": SESSION})
    status = {"stage": "DONE", "recordings": ["nodes/n/sessions/1", "nodes/n/sessions/2"], "conditions": [condition]}
    assert admin.patch("TraceSession", namespace, "s", {"status": status}, part="/status").status == 200
    (row,) = table(admin, "tracesessions", namespace)
    assert row.pop("Age")
    assert row == {
        "Name": "s",
        "Node": "n",
        "Pod": "p",
        "Stage": "DONE",
        "Complete": "True",
        "Recording": "nodes/n/sessions/1",
        "Message": "1 of 3 pods failed",
    }
    admin.made(policy(namespace=namespace, quotas={"maxPeriod": "2s"}))
    (row,) = table(admin, "tracepolicies", namespace)
    assert row.pop("Age")
    assert row == {"Name": "default", "Active": "4", "Replicas": "10", "Period": "2s"}


def test_names_are_what_kubectl_takes(admin: User) -> None:
    resources = admin.call("GET", "/apis/permille.dev/v1alpha1").body["resources"]
    short = {one["name"]: (one["shortNames"], one["categories"]) for one in resources if "/" not in one["name"]}
    assert short == {
        "tracerequests": (["treq"], ["permille"]),
        "tracesessions": (["tses"], ["permille"]),
        "tracepolicies": (["tpol"], ["permille"]),
    }
    crd = admin.get("CustomResourceDefinition", "", "tracerequests.permille.dev").body
    conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    # The server says so here when a schema is not structural.
    assert "NonStructuralSchema" not in conditions


def grant(admin: User, namespace: str, user: str, *rules: Object) -> None:
    """A role of this user's own in a namespace."""
    metadata = {"name": f"{user}-may", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    admin.made({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)})
    reference = {"apiGroup": rbac, "kind": "Role", "name": f"{user}-may"}
    subjects = [{"apiGroup": rbac, "kind": "User", "name": user}]
    binding = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata}
    admin.made({**binding, "roleRef": reference, "subjects": subjects})


def may_create(user: User, namespace: str) -> bool:
    """Whether the API server's authorizer lets this user make requests by now."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "group": "permille.dev",
                "resource": "tracerequests",
                "verb": "create",
                "namespace": namespace,
            }
        },
    }
    answer = user.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer.body["status"]["allowed"])


TRACES = {"apiGroups": ["permille.dev"], "resources": ["tracerequests"], "verbs": ["create", "get", "list"]}
ALL_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
ONE_POD = {**ALL_PODS, "resourceNames": ["web-0"]}
SELECTOR = {"selector": {"matchLabels": {"app": "web"}}}


def test_who_may_trace_what(api_server: ApiServer, admin: User) -> None:
    """Alice may get all pods of her namespace, bob one of them, carol none; dave may get pods, but not trace."""
    own = namespace_of(admin, "own")
    other = namespace_of(admin, "other")
    grant(admin, own, "alice", TRACES, ALL_PODS)
    grant(admin, own, "bob", TRACES, ONE_POD)
    grant(admin, own, "carol", TRACES)
    grant(admin, own, "dave", ALL_PODS)
    grant(admin, other, "alice", TRACES)
    alice, bob, carol, dave = (api_server.user(name) for name in ("alice", "bob", "carol", "dave"))
    for user in (alice, bob, carol):
        eventually(partial(may_create, user, own), "the roles to be in force")
    eventually(lambda: may_create(alice, other), "the roles to be in force")

    assert alice.create(request(own)).status == 201
    assert alice.create(request(own, target=SELECTOR)).status == 201
    assert bob.create(request(own)).status == 201
    for user, name, spec, told in (
        (bob, "bob", {"target": SELECTOR}, "bob may not get all pods in the namespace own; name a pod that you may"),
        (bob, "bob", {"target": {"podName": "web-1"}}, "bob may not get the pod web-1 in the namespace own"),
        (
            carol,
            "carol",
            {},
            "you may trace only what you may get: carol may not get the pod web-0",
        ),
    ):
        answer = user.create(request(own, **spec))
        assert answer.status == 403 and told in answer.message, (name, answer)
    # What she may in her own namespace helps her in no other one.
    answer = alice.create(request(other))
    assert answer.status == 403 and "alice may not get the pod web-0 in the namespace other" in answer.message
    # And without the right to make requests nothing else counts.
    answer = dave.create(request(own))
    assert answer.status == 403 and 'cannot create resource "tracerequests"' in answer.message
    # Nor may anybody of them see the other namespace's requests, or write what the operator writes.
    assert alice.call("GET", "/apis/permille.dev/v1alpha1/tracerequests").status == 403
    name = alice.made(request(own))["metadata"]["name"]
    assert alice.patch("TraceRequest", own, name, {"status": {"replicas": 1}}, part="/status").status == 403


def part_of(admin: User, standard: str) -> list[str]:
    """Those of permille's roles that the controller manager adds to a standard role."""
    selectors = admin.get("ClusterRole", "", standard).body["aggregationRule"]["clusterRoleSelectors"]
    wanted = [one["matchLabels"].items() for one in selectors]
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in admin.list("ClusterRole", "")}
    return [
        name
        for name, own in labels.items()
        if name.startswith("permille-") and any(own.items() >= one for one in wanted)
    ]


def test_a_namespaces_administrator_writes_its_policy_and_who_edits_there_reads_it(
    api_server: ApiServer, admin: User
) -> None:
    namespace, rbac = namespace_of(admin, "administered"), "rbac.authorization.k8s.io"
    for name, standard in {"alice": "admin", "bob": "edit"}.items():
        for role in part_of(admin, standard):
            binding: Object = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding"}
            binding["metadata"] = {"name": f"{name}-{role}", "namespace": namespace}
            binding["roleRef"] = {"apiGroup": rbac, "kind": "ClusterRole", "name": role}
            admin.made({**binding, "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}]})
    alice, bob = api_server.user("alice"), api_server.user("bob")
    for user in (alice, bob):
        eventually(partial(may_create, user, namespace), "the roles to be in force")
    # Each role comes into force by itself.
    eventually(lambda: bob.get("TracePolicy", namespace, "default").status == 404, "the right to read a policy")
    eventually(lambda: alice.create(policy(namespace=namespace)).status == 201, "the right to write a policy")
    wider = {"spec": {"quotas": {"activeRequests": 40}}}
    for answer in (
        bob.patch("TracePolicy", namespace, "default", wider),
        bob.delete("TracePolicy", namespace, "default"),
        alice.create(policy(namespace="default")),
    ):
        assert answer.status == 403, answer
    assert bob.get("TracePolicy", namespace, "default").status == 200
    changed = alice.patch("TracePolicy", namespace, "default", wider)
    assert changed.body["spec"]["quotas"]["activeRequests"] == 40
    assert alice.delete("TracePolicy", namespace, "default").status == 200


def test_the_operator_may_read_what_it_reads_and_no_more(api_server: ApiServer, admin: User) -> None:
    name = admin.made(request(namespace_of(admin, "read")))["metadata"]["name"]
    token = api_server.service_account("permille", "permille-operator")
    operator = User(api_server.url, api_server.ca, token)
    of_one = f"namespaces/read/tracerequests/{name}"
    for path, status in (("tracerequests", 200), (of_one, 200), (f"{of_one}/status", 403), ("tracesessions", 403)):
        answer = operator.call("GET", f"/apis/permille.dev/v1alpha1/{path}")
        assert answer.status == status, (path, answer)
