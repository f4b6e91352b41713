"""The chart's NetworkPolicies let through who calls whom in the mesh, and nothing else; a network has to keep them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kubernetes.api_server import Object
from tests.kubernetes.chart import ALERTS, CLAIM, KMOD, NAMESPACE, VPT, Helm, pods
from tests.kubernetes.network_policies import NAME, Peer, allowed

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
GRPC, METRICS, HEALTH = 7600, 7601, 7602
# Everybody but who comes from outside has its state in etcd, or finds the others there.
OF_ETCD = {(name, "etcd", 2379) for name in ("allocator", "cli", "controller", "coverage", "decoder", "operator")}
CALLS = {
    ("controller", "allocator", GRPC),
    ("coverage", "controller", GRPC),
    ("coverage", "decoder", GRPC),
    ("operator", "coverage", GRPC),
    ("cli", "controller", GRPC),
    ("cli", "coverage", GRPC),
    ("cli", "decoder", GRPC),
}
MEMBERS = {("etcd", "etcd", 2380)}
OF_STORE = {(name, "store", 7070) for name in ("controller", "decoder")}
# Ports that anybody might try.
PORTS = (GRPC, METRICS, HEALTH, 2379, 2380, 2381, 7070, 9095, 22)
# Who belongs to nobody of permille, and who only looks so.
STRANGER = Peer(NAMESPACE, {"app": "shop"})
STRANGERS = {
    "a pod beside": STRANGER,
    "a pod of another release": Peer(NAMESPACE, {}),
    "a pod elsewhere": Peer("shop", {"app": "shop"}),
    "a pod elsewhere with our labels": Peer("shop", {}),
    "Prometheus": Peer("monitoring", {"app": "prometheus"}),
}


def connections(helm: Helm, values: Object) -> set[tuple[str, str, int]]:
    """All that the rendered policies let through to the chart's pods."""
    objects = helm.rendered(values)
    policies = [body for body in objects if body["kind"] == "NetworkPolicy"]
    ours = {
        name.removeprefix("permille-"): Peer(NAMESPACE, pod["metadata"]["labels"])
        for name, pod in pods(objects).items()
    }
    labels = dict(ours["coverage"].labels)
    likest = {
        "a pod of another release": Peer(NAMESPACE, labels | {"app.kubernetes.io/instance": "other"}),
        "a pod elsewhere with our labels": Peer("shop", labels),
    }
    callers = {**ours, **STRANGERS, **likest}
    return {
        (caller, callee, port)
        for caller, peer in callers.items()
        for callee in ours
        for port in PORTS
        if allowed(policies, peer, ours[callee], port)
    }


def test_who_calls_whom_may_and_nobody_else(helm: Helm) -> None:
    assert connections(helm, KMOD) == CALLS | OF_ETCD | MEMBERS | OF_STORE


def test_etcd_of_ones_own_is_not_the_charts_to_guard(helm: Helm) -> None:
    elsewhere = {**KMOD, "etcd": {"endpoints": ["etcd-1:2379"]}}
    assert connections(helm, elsewhere) == CALLS | OF_STORE


def test_a_store_of_ones_own_is_not_the_charts_to_guard(helm: Helm) -> None:
    for values in (CLAIM, {**KMOD, "store": {"url": "s3://traces"}}):
        assert connections(helm, values) == CALLS | OF_ETCD | MEMBERS


def test_an_alert_comes_as_far_as_coverage(helm: Helm) -> None:
    values = {**ALERTS, "networkPolicy": {}}
    alerts = {("Prometheus", "alertmanager", 9095), ("alertmanager", "coverage", GRPC)}
    assert connections(helm, values) == CALLS | OF_ETCD | MEMBERS | OF_STORE | alerts


def test_callers_and_readers_of_metrics_are_those_that_are_named(helm: Helm) -> None:
    monitoring = {"namespaceSelector": {"matchLabels": {NAME: "monitoring"}}}
    shop = {"namespaceSelector": {"matchLabels": {NAME: "shop"}}, "podSelector": {"matchLabels": {"app": "shop"}}}
    values = {**KMOD, "networkPolicy": {"callers": [shop], "metrics": [monitoring]}}
    named = {("a pod elsewhere", callee, GRPC) for callee in ("coverage", "decoder")}
    services = ("allocator", "cli", "controller", "coverage", "decoder", "operator")
    read = {("Prometheus", callee, METRICS) for callee in services} | {("Prometheus", "etcd", 2381)}
    assert connections(helm, values) == CALLS | OF_ETCD | MEMBERS | OF_STORE | named | read


def test_without_policies_all_is_open(helm: Helm) -> None:
    found = connections(helm, {**VPT, "networkPolicy": {"enabled": False}})
    assert ("a pod beside", "controller", GRPC) in found and ("Prometheus", "decoder", METRICS) in found


def test_the_calls_are_those_of_the_code() -> None:
    found = set()
    for package in ("services/*/src", "cli/src"):
        for file in REPOSITORY.glob(f"{package}/**/*.py"):
            for callee in re.findall(r'\.to\("(\w+)"', file.read_text()):
                service = "operator" if file.parent.name == "kubernetes" else file.relative_to(REPOSITORY).parts[1]
                found.add(("cli" if file.is_relative_to(REPOSITORY / "cli") else service, callee, GRPC))
    assert found == CALLS
