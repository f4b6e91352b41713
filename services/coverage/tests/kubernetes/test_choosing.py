"""Which pods a TraceRequest records: the purpose's, spread, within what is allowed, and each with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.kubernetes.choosing import choices, not_chosen
from permille.coverage.domain.kubernetes.instances import Container
from permille.coverage.domain.kubernetes.wish import Policy, wish_of
from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.spatial_sampler import Choice, Instance, Sampling


def pod(
    number: int, *, node: str, zone: str = "", version: str = "v1", rate: float = 0.0, session: str = ""
) -> Instance:
    container = Container(number + 1, "web", session, version=version, pod=f"web-{number}", container="web")
    return Instance(Node(node, (container,), zone=zone), container, bytes_per_second=rate)


def fleet(pods: int, nodes: int, **more: Any) -> list[Instance]:
    return [pod(number, node=f"n{number % nodes}", zone=f"z{number % nodes % 2}", **more) for number in range(pods)]


def chosen(found: list[Instance], allowed: int = 1000, **spec: Any) -> list[Choice]:
    return choices(found, wish_of(spec, Policy(most_replicas=allowed)), Sampling())


def names(made: list[Choice]) -> list[str]:
    return [
        choice.instance.process.pod
        for choice in made
        if choice.chosen and isinstance(choice.instance.process, Container)
    ]


def test_an_anomaly_concerns_every_pod_that_the_quota_allows() -> None:
    found = fleet(12, 4)
    assert len(names(chosen(found, purpose="Anomaly"))) == 12
    bounded = chosen(found, allowed=10, purpose="Anomaly")
    assert len(names(bounded)) == 10
    assert {reason: len(pods) for reason, pods in not_chosen(bounded).items()} == {
        "quotas.maxReplicas of the TracePolicy is 10": 2
    }
    assert len(names(chosen(found, purpose="Anomaly", maxReplicas=3))) == 3


def test_on_demand_one_pod_is_enough_unless_more_are_asked_for() -> None:
    assert len(names(chosen(fleet(12, 4)))) == 1
    two = chosen(fleet(12, 4), maxReplicas=2)
    assert [choice.instance.node.zone for choice in two if choice.chosen] == ["z0", "z1"]


def test_a_profile_looks_at_the_square_root_and_at_more_with_more_priority() -> None:
    found = fleet(16, 16)
    made = chosen(found, purpose="Profiling", priority=20)
    assert [choice.reason for choice in made if choice.chosen] == [
        f"{number} of 4: spread over versions, zones and nodes" for number in (1, 2, 3, 4)
    ]
    assert not_chosen(made).keys() == {"the sample has 4 instances"}
    assert len(names(chosen(found, purpose="Profiling", priority=10))) == 1
    assert len(names(chosen(found, purpose="Profiling", priority=100))) == 16


def test_a_profile_is_spread_over_versions_zones_and_nodes() -> None:
    found = [
        pod(number, node=f"n{number % 4}", zone=f"z{number % 2}", version=f"v{number // 8}") for number in range(16)
    ]
    sample = [choice.instance for choice in chosen(found, purpose="Profiling", priority=20) if choice.chosen]
    assert len(sample) == len({one.node.name for one in sample}) == 4
    for spread_over in ([one.version for one in sample], [one.node.zone for one in sample]):
        assert set(Counter(spread_over).values()) == {2}


def test_a_node_gets_no_second_heavy_session() -> None:
    made = chosen(fleet(4, 2, rate=20e6), purpose="Profiling", priority=100)
    assert len(names(made)) == 2
    assert {reason.partition(" ")[0] for reason in not_chosen(made)} == {"n0", "n1"}
    assert len(names(chosen(fleet(4, 2, rate=1e6), purpose="Profiling", priority=100))) == 4
    # Whatever is recorded there already, for whomever, counts.
    beside = pod(0, node="n0", rate=20e6)
    taken = replace(beside.node, recordable=(*beside.node.recordable, Process(0, "", "other")))
    made = chosen([replace(beside, node=taken), pod(1, node="n1")], purpose="Profiling", priority=100)
    assert not_chosen(made) == {"n0 has a session already": ["web-0"]}


def test_with_rounds_every_pod_may_have_its_turn() -> None:
    found = [*fleet(3, 3), pod(3, node="n0", session="other")]
    made = chosen(found, purpose="Profiling", rounds=8)
    assert len(names(made)) == 3
    assert not_chosen(made) == {"being recorded by other": ["web-3"]}
    assert len(names(chosen(found, purpose="Profiling", rounds=2))) == 2


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from([0.0, 20e6])), min_size=1, max_size=30),
    st.sampled_from(["OnDemand", "Anomaly", "Profiling"]),
    st.integers(1, 20),
    st.integers(0, 100),
)
def test_every_pod_has_its_reason_and_nothing_is_exceeded(
    rows: list[tuple[int, int, float]], purpose: str, allowed: int, priority: int
) -> None:
    found = [
        pod(number, node=f"n{node}", zone=f"z{node % 2}", version=f"v{version}", rate=rate)
        for number, (node, version, rate) in enumerate(rows)
    ]
    made = chosen(found, allowed, purpose=purpose, priority=priority)
    assert len(made) == len(found) and all(choice.reason for choice in made)
    assert 1 <= len(names(made)) <= allowed
    assert sum(map(len, not_chosen(made).values())) == len(found) - len(names(made))
