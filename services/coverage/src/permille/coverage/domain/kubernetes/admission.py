"""Whether the API server asks for the user's rights: the admission policy and its binding, as the chart has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = "tracerequests.permille.dev"
# What is asked, word for word: another expression may ask for less.
VARIABLES = {"pods": "authorizer.group('').resource('pods').namespace(request.namespace)"}
VALIDATIONS = (
    "!has(object.spec.target.podName) || variables.pods.name(object.spec.target.podName).check('get').allowed()",
    "has(object.spec.target.podName) || variables.pods.check('get').allowed()",
)
_RULE = {"apiGroups": "permille.dev", "apiVersions": "*", "operations": "CREATE", "resources": "tracerequests"}
_NARROWING = ("namespaceSelector", "objectSelector", "excludeResourceRules")
Object = Mapping[str, Any]


def trouble(policy: Object | None, binding: Object | None) -> str:
    """Why not every user is asked for; "" when every one is."""
    if policy is None or binding is None:
        return f"there is no {'policy' if policy is None else 'binding'}"
    return _of_policy(policy["spec"]) or _of_binding(binding["spec"])


def made_so(policy: Object, binding: Object) -> str:
    """Since when (RFC 3339) both are as they are where neither was changed since it was made; "" where one was.

    Times of changes are no help: managedFields has none of what was only taken out.
    """
    both = [one["metadata"] for one in (policy, binding)]
    return max(one["creationTimestamp"] for one in both) if all(one["generation"] == 1 for one in both) else ""


def version(policy: Object, binding: Object) -> str:
    """Another one after every change of either: the API server counts those of the spec as generations."""
    return " ".join(f"{one['metadata']['uid']}/{one['metadata']['generation']}" for one in (policy, binding))


def _of_policy(spec: Object) -> str:
    constraints = spec.get("matchConstraints") or {}
    variables = {one["name"]: one["expression"] for one in spec.get("variables") or []}
    asked = {one["expression"] for one in spec.get("validations") or []}
    if spec.get("failurePolicy", "Fail") != "Fail":
        return "the policy lets requests pass when it fails"
    if spec.get("matchConditions") or spec.get("paramKind"):
        return "the policy has conditions or parameters of its own"
    if any(constraints.get(key) for key in _NARROWING) or not any(map(_whole, constraints.get("resourceRules") or [])):
        return "the policy is narrowed to some requests"
    if not asked.issuperset(VALIDATIONS) or any(variables.get(name) != VARIABLES[name] for name in VARIABLES):
        return "the policy does not ask what it should"
    return ""


def _whole(rule: Object) -> bool:
    every = all(wanted in rule.get(key, []) or "*" in rule.get(key, []) for key, wanted in _RULE.items())
    return every and rule.get("scope", "*") in ("*", "Namespaced") and not rule.get("resourceNames")


def _of_binding(spec: Object) -> str:
    resources = spec.get("matchResources") or {}
    if spec.get("policyName") != NAME or "Deny" not in spec.get("validationActions", []):
        return "the binding does not deny"
    if spec.get("paramRef") or any(resources.get(key) for key in (*_NARROWING, "resourceRules")):
        return "the binding is narrowed to some requests"
    return ""
