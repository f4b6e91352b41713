"""TraceRequests as their users make them, and what becomes of them."""

from __future__ import annotations

import itertools
from typing import Any

from permille.mesh.config import default_node

from tests.kubernetes.api_server import Object, User, eventually
from tests.kubernetes.asked_mesh import AskedMesh
from tests.whole_session import assert_did_its_work, assert_whole

NAMESPACE = "shop"
_number = itertools.count()


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


def sessions_of(admin: User, body: Object) -> list[Object]:
    """The TraceSessions of a request."""
    uid = body["metadata"]["uid"]
    return [one for one in admin.list("TraceSession", NAMESPACE) if one["spec"]["requestUID"] == uid]


def described_status(admin: User, plural: str) -> Object:
    """By field of the status, its schema."""
    crd = admin.get("CustomResourceDefinition", "", f"{plural}.permille.dev").body
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    described: Object = schema["properties"]["status"]["properties"]
    return described


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


def assert_rounds_of_their_own(mesh: AskedMesh, admin: User, body: Object, known: set[str]) -> None:
    """The request is complete, and each of its rounds was recorded once, in a session of its own."""
    assert condition(body, "Complete")["reason"] == "Decoded", body["status"]
    rounds, sessions = body["status"]["rounds"], {one["metadata"]["name"]: one for one in sessions_of(admin, body)}
    assert [one["number"] for one in rounds] == list(range(1, len(rounds) + 1))
    assert set(sessions) == {one["session"] for one in rounds}
    assert len({one["spec"]["requestID"] for one in sessions.values()}) == len(rounds)
    for one in rounds:
        spec = sessions[one["session"]]["spec"]
        assert (spec["podUID"], spec["periodMilliseconds"]) == (one["podUID"], one["periodMilliseconds"])
    recordings = [name.rpartition("/")[2] for one in sessions.values() for name in one["status"]["recordings"]]
    assert len(recordings) == len(rounds) and ids(mesh) - known == set(recordings)
