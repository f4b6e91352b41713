"""Which containers of which pods a target means, in the words of the inventory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from permille.coverage.domain.kubernetes.instances import Container, instances, listing
from permille.coverage.domain.kubernetes.labels import label_selector
from permille.coverage.domain.kubernetes.pods import pod_of, zone_of
from permille.mesh.errors import NotFound
from permille.mesh.label_selector import parse, selects


def pod(
    name: str, *, node: str = "n1", containers: tuple[str, ...] = ("web",), image: str = "", **metadata: Any
) -> dict[str, Any]:
    running = [
        {"name": one, "containerID": f"containerd://{one}-{name}", "imageID": image, "state": {"running": {}}}
        for one in containers
    ]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "spec": {"nodeName": node, "containers": [{"name": one} for one in containers]},
        "status": {"containerStatuses": running},
    }


def found(*pods: dict[str, Any], container: str = "", **known: Any) -> list[Container]:
    listed = listing(map(pod_of, pods), known.get("zones", {}), known.get("recorded", {}), container=container)
    return [one.process for one in instances(listed) if isinstance(one.process, Container)]


def owned_by(kind: str, name: str, **labels: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}], "labels": labels}


def test_a_pod_means_its_first_container_unless_told_otherwise() -> None:
    two = pod("a", containers=("web", "proxy"))
    marked = pod("b", containers=("web", "proxy"), annotations={"kubectl.kubernetes.io/default-container": "proxy"})
    assert [one.container for one in found(two, marked)] == ["web", "proxy"]
    assert [one.container for one in found(two, marked, container="web")] == ["web", "web"]
    (alone,) = found(two)
    assert (alone.pod, alone.pod_uid, alone.container_id) == ("a", "uid-a", "web-a")


def test_what_does_not_run_is_left_out_and_when_nothing_is_left_the_reasons_are_told() -> None:
    pending = {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "web"}]}}
    waiting = pod("b")
    waiting["status"]["containerStatuses"][0] = {"name": "web", "state": {"waiting": {}}}
    ending = pod("c", deletionTimestamp="2026-01-01T00:00:00Z")
    assert [one.pod for one in found(pending, waiting, ending, pod("d"), container="web")] == ["d"]
    with pytest.raises(NotFound) as refused:
        found(pending, waiting, ending, container="web")
    assert refused.value.message == (
        "pod a is not on a node yet; pod b has no running container web; pod c is being deleted"
    )
    with pytest.raises(NotFound, match="pod a has no container db, only web"):
        found(pod("a"), container="db")
    with pytest.raises(NotFound, match="no such pod is in this namespace"):
        found()


@pytest.mark.parametrize(
    ("metadata", "image", "owner", "version"),
    [
        (owned_by("ReplicaSet", "web-5d4f", **{"pod-template-hash": "5d4f"}), "", "Deployment/web", "5d4f"),
        (
            owned_by("ReplicaSet", "web-5d4f", **{"pod-template-hash": "5d4f"}),
            "r/web@sha256:1",
            "Deployment/web",
            "sha256:1",
        ),
        (owned_by("ReplicaSet", "web"), "sha256:1", "ReplicaSet/web", "sha256:1"),
        (owned_by("StatefulSet", "db", **{"controller-revision-hash": "db-7"}), "", "StatefulSet/db", "db-7"),
        ({}, "r/web@sha256:1", "container web", "sha256:1"),
        ({}, "", "container web", ""),
    ],
)
def test_replicas_of_one_owner_and_one_image_are_one_version(
    metadata: dict[str, Any], image: str, owner: str, version: str
) -> None:
    (one,) = found(pod("a", image=image, **metadata))
    assert (one.name, one.version) == (owner, f"{owner} {version}".strip())


def test_nodes_come_with_their_zones_and_with_what_else_is_recorded_there() -> None:
    zones = {"n1": zone_of({"metadata": {"labels": {"topology.kubernetes.io/zone": "east"}}}), "n2": "west"}
    recorded = {"web-a": ("n1", "one"), "of-others": ("n1", "two"), "elsewhere": ("n3", "three")}
    listed = listing(map(pod_of, [pod("a"), pod("b", node="n2")]), zones, recorded)
    assert [(one.node.name, one.node.zone, one.process.session) for one in instances(listed)] == [
        ("n1", "east", "one"),
        ("n2", "west", ""),
    ]
    assert [[one.session for one in node.recordable] for node in listed.nodes] == [["one", "two"], [""]]


def test_a_label_selector_as_one_line() -> None:
    selector = {
        "matchLabels": {"tier": "front", "app": "web"},
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "env", "operator": "NotIn", "values": ["test"]},
            {"key": "canary", "operator": "Exists"},
            {"key": "legacy", "operator": "DoesNotExist"},
        ],
    }
    line = label_selector(selector)
    assert line == "app=web,tier=front,zone in (a,b),env notin (test),canary,!legacy"
    meant = {"app": "web", "tier": "front", "zone": "b", "canary": ""}
    assert selects(parse(line), meant)
    for other in ({"zone": "c"}, {"env": "test"}, {"legacy": ""}, {"tier": "back"}):
        assert not selects(parse(line), meant | other)
    assert not selects(parse(line), {key: value for key, value in meant.items() if key != "canary"})


keys = st.sampled_from(["app", "example.org/tier", "a.b_c-d", "in", "notin"])
words = st.sampled_from(["", "web", "in", "v1.2", "x_y"])
expressions = st.one_of(
    st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries(
        {"key": keys, "operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(words, min_size=1, max_size=3)}
    ),
)


@given(st.dictionaries(keys, words), st.lists(expressions, max_size=4), st.dictionaries(keys, words))
def test_the_line_selects_what_the_selector_means(
    equal: dict[str, str], expressions: list[dict[str, Any]], labels: dict[str, str]
) -> None:
    def holds(one: dict[str, Any]) -> bool:
        key, values = one["key"], one.get("values", [])
        return {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[one["operator"]]

    meant = all(labels.get(key) == value for key, value in equal.items()) and all(map(holds, expressions))
    line = label_selector({"matchLabels": equal, "matchExpressions": expressions})
    # One that says nothing is refused before.
    assume(line)
    assert selects(parse(line), labels) is meant
