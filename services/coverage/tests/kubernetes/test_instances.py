"""Which pods a TraceRequest means."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.kubernetes.instances import Instance, instances, label_selector, spread


def pod(name: str, *, node: str = "n1", containers: tuple[str, ...] = ("web",), **metadata: Any) -> dict[str, Any]:
    running = [
        {"name": one, "containerID": f"containerd://{one}-{name}", "state": {"running": {}}} for one in containers
    ]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": one} for one in containers]},
        "status": {"containerStatuses": running},
    }


def test_a_pod_means_its_first_container_unless_told_otherwise() -> None:
    two = pod("a", containers=("web", "proxy"))
    marked = pod("b", containers=("web", "proxy"), annotations={"kubectl.kubernetes.io/default-container": "proxy"})
    assert [one.container for one in instances([two, marked])[0]] == ["web", "proxy"]
    assert [one.container for one in instances([two, marked], "web")[0]] == ["web", "web"]
    assert instances([two])[0] == [Instance("a", "uid-a", "n1", "web", "web-a")]


def test_what_does_not_run_is_left_out_with_the_reason() -> None:
    pending = {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "web"}]}}
    waiting = pod("b")
    waiting["status"]["containerStatuses"][0] = {"name": "web", "state": {"waiting": {}}}
    ending = pod("c", deletionTimestamp="2026-01-01T00:00:00Z")
    found, without = instances([pending, waiting, ending, pod("d")], "web")
    assert [one.pod for one in found] == ["d"]
    assert without == [
        "pod a is not on a node yet",
        "pod b has no running container web",
        "pod c is being deleted",
    ]
    assert instances([pod("a")], "db")[1] == ["pod a has no container db, only web"]


one_of = st.builds(
    lambda number, node: Instance(f"p{number}", f"u{number}", f"n{node}", "c", "i"),
    st.integers(0, 99),
    st.integers(0, 5),
)


@given(st.lists(one_of, unique_by=lambda one: one.pod), st.integers(1, 20), st.randoms())
def test_replicas_are_spread_over_nodes_whatever_their_order(
    candidates: list[Instance], at_most: int, random: Any
) -> None:
    chosen = spread(candidates, at_most)
    assert len(chosen) == min(at_most, len(candidates)) and set(chosen) <= set(candidates)
    shuffled = list(candidates)
    random.shuffle(shuffled)
    assert spread(shuffled, at_most) == chosen
    # A node gets another one only when no node with fewer has one left.
    on = {node: sum(one.node == node for one in chosen) for node in {one.node for one in candidates}}
    left = {one.node for one in candidates if one not in chosen}
    assert all(on[node] >= max(on.values()) - 1 for node in left)


def test_a_label_selector_as_a_query() -> None:
    selector = {
        "matchLabels": {"tier": "front", "app": "web"},
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "env", "operator": "NotIn", "values": ["test"]},
            {"key": "canary", "operator": "Exists"},
            {"key": "legacy", "operator": "DoesNotExist"},
        ],
    }
    assert label_selector(selector) == "app=web,tier=front,zone in (a,b),env notin (test),canary,!legacy"
