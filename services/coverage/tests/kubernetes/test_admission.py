"""When the API server asks for every user's rights, and when it does not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from permille.coverage.domain.kubernetes.admission import NAME, made_so, trouble, version

CHART = Path(__file__).parents[4] / "deploy" / "helm" / "permille"
Object = dict[str, Any]
# Not typed by its authors.
_read_yaml: Callable[[str], Any] = yaml.safe_load_all


def installed() -> tuple[Object, Object]:
    policy, binding = _read_yaml((CHART / "files" / "admission.yaml").read_text())
    for body in (policy, binding):
        uid = body["kind"]
        body["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "uid": uid}
    return policy, binding


def test_the_charts_policy_asks_everybody() -> None:
    policy, binding = installed()
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == NAME
    assert trouble(policy, binding) == ""
    # What the server adds, and further validations, take nothing away.
    constraints = policy["spec"]["matchConstraints"]
    constraints |= {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}
    policy["spec"]["validations"].append({"expression": "object.spec.purpose != 'Anomaly'"})
    assert trouble(policy, binding) == ""


SELECTOR = {"matchLabels": {"a": "b"}}
OTHER_RULE = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"]}
ONE_NAME = {
    "apiGroups": ["permille.dev"],
    "apiVersions": ["*"],
    "operations": ["CREATE"],
    "resources": ["tracerequests"],
    "resourceNames": ["one"],
}


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("policy", {"failurePolicy": "Ignore"}, "lets requests pass"),
        ("policy", {"matchConditions": [{"name": "never", "expression": "false"}]}, "conditions or parameters"),
        ("policy", {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, "conditions or parameters"),
        ("policy", {"validations": []}, "does not ask"),
        ("policy", {"validations": [{"expression": "true"}]}, "does not ask"),
        ("policy", {"variables": [{"name": "pods", "expression": "authorizer.path('/healthz')"}]}, "does not ask"),
        ("policy", {"matchConstraints": {"resourceRules": [OTHER_RULE]}}, "narrowed"),
        ("policy", {"matchConstraints": {"resourceRules": [ONE_NAME]}}, "narrowed"),
        ("policy", {"matchConstraints": {"namespaceSelector": SELECTOR}}, "narrowed"),
        ("policy", {"matchConstraints": {"excludeResourceRules": [OTHER_RULE]}}, "narrowed"),
        ("binding", {"validationActions": ["Audit"]}, "does not deny"),
        ("binding", {"policyName": "other"}, "does not deny"),
        ("binding", {"paramRef": {"name": "p"}}, "narrowed"),
        ("binding", {"matchResources": {"namespaceSelector": SELECTOR}}, "narrowed"),
        ("binding", {"matchResources": {"objectSelector": SELECTOR}}, "narrowed"),
        ("binding", {"matchResources": {"excludeResourceRules": [OTHER_RULE]}}, "narrowed"),
    ],
)
def test_one_that_asks_for_less_is_as_none(part: str, change: Object, told: str) -> None:
    policy, binding = installed()
    changed = policy if part == "policy" else binding
    before = copy.deepcopy(changed["spec"])
    changed["spec"] |= {
        key: {**before[key], **value} if key == "matchConstraints" else value for key, value in change.items()
    }
    assert told in trouble(policy, binding)
    changed["spec"] = before
    assert trouble(policy, binding) == ""


def test_without_one_of_the_two_nobody_is_asked() -> None:
    policy, binding = installed()
    assert trouble(None, binding) == "there is no policy"
    assert trouble(policy, None) == "there is no binding"


def test_one_that_was_never_changed_counts_from_when_it_was_made() -> None:
    policy, binding = installed()
    binding["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    assert made_so(policy, binding) == "2026-01-02T00:00:00Z"
    for changed in (policy, binding):
        changed["metadata"]["generation"] = 2
        assert made_so(policy, binding) == ""
        changed["metadata"]["generation"] = 1


def test_every_change_makes_another_version() -> None:
    policy, binding = installed()
    versions = {version(policy, binding)}
    for changed in (policy, binding):
        changed["metadata"]["generation"] += 1
        versions.add(version(policy, binding))
    policy["metadata"] |= {"uid": "made-anew", "generation": 1}
    assert len(versions | {version(policy, binding)}) == 4
