"""Which instances are recorded: spread, within quotas, and with a reason for each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.plan import Policy, Wish, plan
from permille.coverage.domain.quota import Limit, Quota, Room
from permille.coverage.domain.rates import Rates
from permille.coverage.domain.spatial_sampler import Instance, Sampling, choose, sample_size, spread
from permille.coverage.domain.target import Target
from permille.mesh.errors import InvalidArgument, ResourceExhausted


def instance(number: int, *, node: str = "", zone: str = "", version: str = "v1", rate: float = 0.0) -> Instance:
    process = Process(number + 1, "server", version=version)
    return Instance(Node(node or f"n{number}", (process,), zone=zone, cores=4), process, bytes_per_second=rate)


instances = st.lists(
    st.builds(
        lambda number, node, zone, version, rate: (number, node, zone, version, rate),
        st.integers(0, 1000),
        st.integers(0, 5),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, 1e6, 20e6]),
    ),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[0],
).map(
    lambda rows: [
        instance(number, node=f"n{node}", zone=f"z{node % 3}", version=f"v{version}", rate=rate)
        for number, node, zone, version, rate in rows
    ]
)


@given(instances)
def test_an_anomaly_concerns_every_instance(all_of_them: list[Instance]) -> None:
    found = choose(all_of_them, Purpose.ANOMALY, 0, sampling=Sampling())
    assert found.chosen == all_of_them


@given(instances, st.integers(0, 100), st.integers(1, 8), st.integers(1, 100))
def test_a_sample_keeps_every_limit_and_gives_each_instance_its_reason(
    all_of_them: list[Instance], priority: int, cores: int, megabytes: int
) -> None:
    quota = Quota(cores=cores, bytes_per_second=megabytes * 1e6)
    found = choose(all_of_them, Purpose.PROFILING, priority, room=Room([Limit(quota)]), sampling=Sampling())
    size, _ = sample_size(all_of_them, priority, Sampling())
    assert len(found.chosen) <= size
    assert sum(one.cores for one in found.chosen) <= cores
    assert sum(one.bytes_per_second for one in found.chosen) <= megabytes * 1e6
    heavy = Counter(one.node.name for one in found.chosen if one.bytes_per_second >= 15e6)
    assert max(heavy.values(), default=0) <= 1
    assert len(found.choices) == len(all_of_them)
    assert all(choice.reason for choice in found.choices)


@given(instances)
def test_any_beginning_of_the_order_is_spread(all_of_them: list[Instance]) -> None:
    ordered = list(spread(all_of_them))
    assert sorted(map(id, ordered)) == sorted(map(id, all_of_them))
    versions = {one.version for one in all_of_them}
    assert {one.version for one in ordered[: len(versions)]} == versions


def test_the_order_goes_round_zones_and_then_nodes() -> None:
    rows = [instance(n, node=f"n{n // 2}", zone="ab"[n // 4]) for n in range(8)]
    ordered = list(spread(rows))
    assert [one.node.zone for one in ordered[:4]] == ["a", "b", "a", "b"]
    assert len({one.node.name for one in ordered[:4]}) == 4


@given(st.integers(1, 300), st.integers(0, 99))
def test_a_larger_priority_or_deployment_never_makes_a_smaller_sample(number: int, priority: int) -> None:
    def size(count: int, wanted: int) -> int:
        return sample_size([instance(n) for n in range(count)], wanted, Sampling())[0]

    assert 1 <= size(number, priority) <= size(number, priority + 1) <= number
    assert size(number, priority) <= size(number + 1, priority)


def test_the_square_root_at_the_threshold_all_at_the_top_and_one_of_each_version_below() -> None:
    many = [instance(n, version=f"v{n % 2}") for n in range(100)]
    assert sample_size(many, 20, Sampling())[0] == 10
    assert sample_size(many, 100, Sampling())[0] == 100
    assert sample_size(many, 19, Sampling())[0] == 2


@given(instances, st.sampled_from(Purpose), st.integers(0, 100), st.sets(st.sampled_from([f"n{n}" for n in range(6)])))
def test_no_plan_has_two_sessions_on_a_node_nor_a_profile_a_heavy_one_where_another_records(
    all_of_them: list[Instance], purpose: Purpose, priority: int, held: set[str]
) -> None:
    nodes: dict[str, list[Process]] = {}
    for one in all_of_them:
        nodes.setdefault(one.node.name, []).append(replace(one.process, name="server"))
    listed = [Node(name, tuple(processes), zone=name, cores=4) for name, processes in nodes.items()]
    wish = Wish(Target(process_name="server"), purpose, priority=priority)
    for known in (Rates(bytes_per_second=rate, sessions=1) for rate in (0.0, 4e6, 20e6)):
        room = Room(held=frozenset(held))
        try:
            made = plan(wish, listed, {("vpt", "server"): known}, room=room)
        except ResourceExhausted as error:
            assert error.reason == "QUOTA_IN_USE"
            assert purpose is Purpose.PROFILING
            assert held.issuperset(nodes)
            continue
        assert len({session.node for session in made.nodes}) == len(made.nodes)
        heavy = {session.node for session in made.nodes if len(session.pids) * known.bytes_per_second >= 15e6}
        assert made.heavy_nodes == heavy
        if purpose is Purpose.PROFILING:
            assert heavy.isdisjoint(held)
        else:
            assert sum(len(session.pids) for session in made.nodes) == len(all_of_them)
            waiting = {choice.instance.node.name for choice in made.choices if "it begins when" in choice.reason}
            assert waiting == heavy & held


def test_sessions_of_other_programs_count_where_the_node_tells_only_the_processes_asked_for() -> None:
    process = Process(1, "server", backend="kmod")
    node = Node("n1", (process,), recording=("nodes/n1/sessions/s",))
    found = choose([Instance(node, process, bytes_per_second=20e6)], Purpose.PROFILING, 50, sampling=Sampling())
    assert found.choices[0].reason == "n1 has a session already"
    with pytest.raises(ResourceExhausted) as failure:
        plan(Wish(Target(process_name="server"), Purpose.PROFILING), [node], {})
    assert (failure.value.reason, failure.value.retry_after_s) == ("QUOTA_IN_USE", 5.0)


def test_light_processes_that_are_heavy_together_are_no_session_beside_another() -> None:
    crowd = [Process(pid, "server") for pid in range(1, 11)]
    node = Node("n1", tuple(crowd))
    rows = [Instance(node, process, bytes_per_second=4e6) for process in crowd]
    found = choose(rows, Purpose.PROFILING, 100, room=Room(held=frozenset({"n1"})), sampling=Sampling())
    assert len(found.chosen) == 3
    assert found.choices[3].reason == "n1 has a heavy session of another request"


def test_a_node_that_records_anything_gets_no_heavy_session_beside_it() -> None:
    busy = Process(9, "other", session="nodes/n1/sessions/s")
    mine = Process(1, "server")
    node = Node("n1", (mine, busy))
    heavy = choose([Instance(node, mine, bytes_per_second=20e6)], Purpose.PROFILING, 50, sampling=Sampling())
    assert heavy.chosen == []
    assert heavy.choices[0].reason == "n1 has a session already"
    light = choose([Instance(node, mine)], Purpose.PROFILING, 50, sampling=Sampling())
    assert len(light.chosen) == 1


NODES = [Node(f"n{n}", (Process(n + 1, "server", threads=2),), cores=4, zone=f"z{n % 2}") for n in range(9)]
LIGHT = {("vpt", "server"): Rates(bytes_per_second=1e6, sessions=3)}


def test_a_profile_of_nine_replicas_plans_a_few_and_says_why_not_the_others() -> None:
    made = plan(Wish(Target(process_name="server"), Purpose.PROFILING, priority=20), NODES, LIGHT)
    assert len(made.nodes) == 3
    assert Counter(choice.chosen for choice in made.choices) == {True: 3, False: 6}
    assert made.choices[-1].reason == "the sample has 3 instances"
    assert [term.name for term in made.sample_terms] == ["density", "priority", "sample"]


def test_with_rounds_one_is_planned_and_the_others_may_follow_in_spread_order() -> None:
    made = plan(Wish(Target(process_name="server"), Purpose.PROFILING, rounds=5), NODES, LIGHT)
    assert [session.node for session in (*made.nodes, *made.later)][:3] == ["n0", "n1", "n2"]
    assert (len(made.nodes), len(made.later)) == (1, 4)
    assert Counter(choice.reason for choice in made.choices if not choice.chosen) == {"rounds: at most 5": 4}
    # When all had their turn they begin again.
    assert len(plan(Wish(Target(process_name="server"), Purpose.PROFILING, rounds=64), NODES, LIGHT).later) == 8


def test_one_round_is_one_instance() -> None:
    made = plan(Wish(Target(process_name="server"), Purpose.PROFILING, rounds=1), NODES, LIGHT)
    assert ([len(session.pids) for session in made.nodes], made.later) == ([1], ())


def test_named_processes_are_all_recorded_whatever_for() -> None:
    made = plan(Wish(Target(pids=(1,)), Purpose.PROFILING, priority=0), NODES[:1], LIGHT)
    assert (len(made.nodes), len(made.later)) == (1, 0)


def test_the_quota_of_the_namespace_holds_for_anomalies_too() -> None:
    policy = Policy(quotas={"shop": Quota(cores=5), "default": Quota(cores=1)})
    wish = Wish(Target(process_name="server"), Purpose.ANOMALY, namespace="shop")
    made = plan(wish, NODES, LIGHT, policy=policy)
    assert len(made.nodes) == 2
    assert made.choices[2].reason == "the quota is 5 traced cores"
    with pytest.raises(ResourceExhausted, match="quota is 1 traced cores"):
        plan(Wish(Target(process_name="server"), Purpose.ANOMALY, namespace="other"), NODES, LIGHT, policy=policy)


def test_core_seconds_and_overhead_are_told_beforehand() -> None:
    made = plan(Wish(Target(process_name="server"), Purpose.ANOMALY, period_ms=500), NODES, LIGHT)
    assert made.expected_core_seconds == 9 * 2 * 0.5
    assert made.nodes[0].expected_overhead == pytest.approx(1e6 / 50e6)


def test_a_priority_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="priority 101"):
        plan(Wish(Target(process_name="server"), priority=101), NODES, LIGHT)
