"""Nothing is recorded of which nobody has asked whether its user may see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from permille.coverage.domain.kubernetes.conditions import from_timestamp, timestamp

from tests.kubernetes.api_server import Object, User, eventually
from tests.kubernetes.operator_process import Operator
from tests.kubernetes.trace_requests import NAMESPACE, condition, finished, request

pytestmark = pytest.mark.slow
POLICY, BINDING, RIGHTS = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "tracerequests.permille.dev"


def test_nothing_is_accepted_while_nobody_asks_for_rights(operator: Operator, admin: User, pod: str) -> None:
    binding = admin.get(BINDING, "", RIGHTS).body
    assert admin.delete(BINDING, "", RIGHTS).status == 200
    made = admin.made(request(period="100ms"))
    name = made["metadata"]["name"]
    try:
        assert "there is no binding" in said_of_rights(admin, name)
    finally:
        await_next_second(made["metadata"]["creationTimestamp"])
        admin.made({**binding, "metadata": {"name": RIGHTS}})
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
    await_next_second(admin.made(request(period="100ms"))["metadata"]["creationTimestamp"])
    made = admin.made(request(period="100ms"))
    name = made["metadata"]["name"]
    try:
        assert told in said_of_rights(admin, name)
    finally:
        await_next_second(made["metadata"]["creationTimestamp"])
        assert admin.patch(POLICY, "", RIGHTS, {"spec": {key: before.get(key) for key in changed}}).status == 200
    # It is older than the change that made the policy whole again.
    assert condition(finished(admin, name), "Failed")["reason"] == "NotChecked"


@pytest.mark.usefixtures("pod")
def test_a_policy_that_was_weak_while_no_operator_looked_is_noticed_by_the_next_one(
    operator: Operator, admin: User
) -> None:
    operator.kill()
    never = [{"name": "never", "expression": "false"}]
    assert admin.patch(POLICY, "", RIGHTS, {"spec": {"matchConditions": never}}).status == 200
    await_next_second(timestamp(datetime.now(UTC)))
    made = admin.made(request(period="100ms"))
    assert admin.patch(POLICY, "", RIGHTS, {"spec": {"matchConditions": None}}).status == 200
    await_next_second(made["metadata"]["creationTimestamp"])
    operator.start()
    refused = finished(admin, made["metadata"]["name"])
    assert condition(refused, "Failed")["reason"] == "NotChecked"
    await_next_second(refused["status"]["completionTime"])
    # From now on it is known, whether an operator looks or not.
    operator.kill()
    name = admin.made(request(period="100ms"))["metadata"]["name"]
    operator.start()
    assert condition(finished(admin, name), "Complete")["reason"] == "Decoded"


def said_of_rights(admin: User, name: str) -> str:
    """Why nothing is accepted, when it is said."""

    def refused() -> bool:
        body = admin.get("TraceRequest", NAMESPACE, name).body
        return condition(body, "Accepted").get("reason") == "AdmissionPolicyMissing"

    eventually(refused, "the reason")
    return str(condition(admin.get("TraceRequest", NAMESPACE, name).body, "Accepted")["message"])


def await_next_second(moment: str) -> None:
    """As the API server tells time, in whole seconds: what was made before has not been checked."""
    next_second = from_timestamp(moment) + timedelta(seconds=1)
    eventually(lambda: datetime.now(UTC) >= next_second, "the next second")
