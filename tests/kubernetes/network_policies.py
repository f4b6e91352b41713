"""Who may call whom, by the NetworkPolicies of Kubernetes: their ingress side, without address blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.kubernetes.api_server import Object

Labels = Mapping[str, str]
# Every namespace has its name for a label.
NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class Peer:
    """A pod: where it is, and its labels."""

    namespace: str
    labels: Labels


def allowed(policies: Iterable[Object], caller: Peer, callee: Peer, port: int) -> bool:
    """Whether a network that keeps these policies lets a TCP connection through.

    A pod that no policy selects is open to all; else what any rule of any policy of it allows is allowed.
    """
    mine = [one for one in policies if one["metadata"]["namespace"] == callee.namespace and _isolates(one, callee)]
    rules = [(one, rule) for one in mine for rule in one["spec"].get("ingress") or []]
    return not mine or any(_matches(policy, rule, caller, port) for policy, rule in rules)


def _isolates(policy: Object, callee: Peer) -> bool:
    assert "egress" not in policy["spec"], "only the ingress side is read here"
    return "Ingress" in policy["spec"]["policyTypes"] and _selected(policy["spec"]["podSelector"], callee.labels)


def _matches(policy: Object, rule: Object, caller: Peer, port: int) -> bool:
    # Neither a port nor a peer, or empty lists of them: any.
    ports, peers = rule.get("ports") or [], rule.get("from") or []
    here = policy["metadata"]["namespace"]
    by_port = not ports or any(one.get("protocol", "TCP") == "TCP" and one.get("port") in (None, port) for one in ports)
    return by_port and (not peers or any(_is(one, caller, here) for one in peers))


def _is(peer: Object, caller: Peer, here: str) -> bool:
    assert peer.keys() <= {"podSelector", "namespaceSelector"}, peer
    if "namespaceSelector" in peer:
        there = _selected(peer["namespaceSelector"], {NAME: caller.namespace})
    else:
        there = caller.namespace == here
    return there and _selected(peer.get("podSelector", {}), caller.labels)


def _selected(selector: Object, labels: Labels) -> bool:
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(_holds(one, labels) for one in selector.get("matchExpressions") or [])


def _holds(expression: Object, labels: Labels) -> bool:
    key, values = expression["key"], expression.get("values")
    return {
        "In": labels.get(key) in (values or []),
        "NotIn": labels.get(key) not in (values or []),
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]
