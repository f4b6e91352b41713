"""Who is recorded, for how long and at which cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.coverage.domain.node import GroupOnNode, Node, Process
from permille.coverage.domain.period import LONGEST_MS, Purpose, require_period
from permille.coverage.domain.plan import NodePlan, Policy, Wish, plan
from permille.coverage.domain.quota import Limit, Quota, Room, Usage
from permille.coverage.domain.rates import DECODE_FLOOR_MS, Observation, Rates
from permille.coverage.domain.target import MOST_PIDS, Target, match
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted

N1 = Node(
    "n1",
    recordable=(Process(11, "redis-server"), Process(12, "redis-server"), Process(13, "gzip")),
    others=(Process(99, "nginx"),),
    trace_budget_bytes=1 << 30,
)
N2 = Node("n2", recordable=(Process(13, "gzip"), Process(21, "redis-server")))


@pytest.mark.parametrize("asked", [1, 500, LONGEST_MS])
def test_a_period_within_the_limits_is_kept(asked: int) -> None:
    assert require_period(asked) == asked
    assert plan(Wish(Target(pids=(13,)), period_ms=asked), [N1], {}).nodes[0].period_ms == asked


@pytest.mark.parametrize("asked", [-1, LONGEST_MS + 1])
def test_a_period_outside_the_limits_is_refused_with_the_limits(asked: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{asked} ms is outside 1 ms to 60000 ms"):
        plan(Wish(Target(pids=(13,)), period_ms=asked), [N1], {})


def test_a_period_not_given_is_decided_and_explained() -> None:
    anomaly, profile = (
        plan(Wish(Target(pids=(13,)), purpose), [N1], {}).nodes[0] for purpose in (Purpose.ANOMALY, Purpose.PROFILING)
    )
    assert anomaly.period_ms > profile.period_ms
    assert sum(term.contribution for term in anomaly.terms) == pytest.approx(anomaly.period_ms, abs=0.51)
    troubled = plan(Wish(Target(pids=(13,))), [N1], {}, issues={"gzip": 5}).nodes[0]
    assert troubled.period_ms > plan(Wish(Target(pids=(13,))), [N1], {}).nodes[0].period_ms
    assert plan(Wish(Target(pids=(13,))), [N1], {}, policy=Policy(longest_ms=200)).nodes[0].period_ms == 200
    assert plan(Wish(Target(pids=(13,)), longest_ms=150), [N1], {}).nodes[0].period_ms == 150


def test_all_processes_of_a_name_on_all_nodes_are_meant() -> None:
    found = match(Target(process_name="redis-server"), [N1, N2])
    assert [(m.node.name, [p.pid for p in m.processes]) for m in found] == [("n1", [11, 12]), ("n2", [21])]


def test_pids_are_meant_once_each_in_the_order_given() -> None:
    (found,) = match(Target(pids=(12, 11, 12)), [N1])
    assert [p.pid for p in found.processes] == [12, 11]


def test_a_pid_that_does_not_run_is_not_found() -> None:
    with pytest.raises(NotFound, match="no process with pid 5 is running on n1, n2"):
        match(Target(pids=(5,)), [N1, N2])


@pytest.mark.parametrize("target", [Target(pids=(99,)), Target(process_name="nginx")])
def test_a_running_process_that_cannot_be_recorded_says_how_to_start_it(target: Target) -> None:
    with pytest.raises(FailedPrecondition, match=r"99 \(nginx\)") as caught:
        match(target, [N1])
    assert "permille run -- CMD" in caught.value.help


def test_a_pid_on_two_nodes_asks_for_the_node() -> None:
    with pytest.raises(InvalidArgument, match="pid 13 exists on several nodes: n1, n2"):
        match(Target(pids=(13,)), [N1, N2])
    # Only one of those asked for is on both.
    with pytest.raises(InvalidArgument, match="pid 13 exists on several nodes: n1, n2"):
        match(Target(pids=(11, 13)), [N1, N2, Node("n3")])


def test_pids_of_different_nodes_are_told_where_each_is() -> None:
    with pytest.raises(InvalidArgument, match=r"different nodes: 11 on n1, 21 on n2$") as refused:
        match(Target(pids=(11, 21, 5)), [N1, N2])
    assert (refused.value.metadata, "for each node" in refused.value.help) == ({"nodes": "n1, n2"}, True)


def test_a_name_that_nobody_has_brings_the_nearest() -> None:
    with pytest.raises(NotFound) as caught:
        match(Target(process_name="redis-serve"), [N1])
    assert caught.value.help == "did you mean redis-server?"
    with pytest.raises(NotFound) as caught:
        match(Target(process_name="zzz"), [N1])
    assert caught.value.help == "recordable now: gzip, redis-server"
    with pytest.raises(NotFound) as caught:
        match(Target(process_name="zzz"), [Node("n3")])
    assert "permille run" in caught.value.help


@pytest.mark.parametrize("pids", [(0,), (-4,), (1 << 22,), tuple(range(1, MOST_PIDS + 2))])
def test_pids_that_cannot_be_are_refused(pids: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument):
        Target(pids=pids)


def test_an_empty_target_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="names no process"):
        Target()


def test_a_process_being_recorded_is_refused_with_its_session() -> None:
    busy = Node("n1", recordable=(Process(11, "a", session="nodes/n1/sessions/s1"),))
    with pytest.raises(FailedPrecondition, match="nodes/n1/sessions/s1"):
        plan(Wish(Target(pids=(11,))), [busy], {})


@pytest.mark.parametrize("purpose", [Purpose.ANOMALY, Purpose.ON_DEMAND])
def test_of_a_name_what_is_being_recorded_is_left_to_who_records_it(purpose: Purpose) -> None:
    free, busy = (Process(pid, "worker") for pid in (1, 3)), Process(2, "worker", session="nodes/n1/sessions/s1")
    made = plan(Wish(Target(process_name="worker"), purpose), [Node("n1", (busy, *free))], {})
    assert [(session.pids, session.left_out) for session in made.nodes] == [((1, 3), 0)]
    assert [(choice.instance.process.pid, choice.reason) for choice in made.choices if not choice.chosen] == [
        (2, "being recorded by nodes/n1/sessions/s1")
    ]
    with pytest.raises(FailedPrecondition, match="nodes/n1/sessions/s1") as refused:
        plan(Wish(Target(process_name="worker"), purpose), [Node("n1", (busy,))], {})
    assert refused.value.reason == "ALREADY_TRACED"


@pytest.mark.parametrize(
    "target", [Target(pids=(1, 2)), Target(container_id="0123456789ab")], ids=["by pid", "as a group"]
)
def test_who_was_named_is_recorded_whole_or_not_at_all(target: Target) -> None:
    processes = (Process(1, "worker"), Process(2, "worker", session="nodes/n1/sessions/s1"))
    group = GroupOnNode(frozenset({1, 2}), "0123456789ab")
    with pytest.raises(FailedPrecondition, match=r"process 2 \(worker\) is being recorded") as refused:
        plan(Wish(target), [Node("n1", processes, group=group)], {})
    assert refused.value.reason == "ALREADY_TRACED"


def test_what_is_free_and_does_not_fit_now_is_told_to_come_again_and_not_that_all_are_recorded() -> None:
    processes = (Process(1, "worker", session="nodes/n1/sessions/s1"), Process(2, "worker"))
    room = Room([Limit(Quota(cores=2), Usage(cores=2))])
    with pytest.raises(ResourceExhausted, match="being recorded by nodes/n1/sessions/s1; the quota is 2") as refused:
        plan(Wish(Target(process_name="worker")), [Node("n1", processes)], {}, room=room)
    assert refused.value.reason == "QUOTA_IN_USE"


@pytest.mark.parametrize("purpose", [Purpose.ANOMALY, Purpose.ON_DEMAND])
def test_a_node_has_one_session_and_what_is_beyond_its_processes_is_told(purpose: Purpose) -> None:
    crowd = Node("n1", recordable=tuple(Process(pid, "worker") for pid in range(1, 151)))
    made = plan(Wish(Target(process_name="worker"), purpose), [crowd, N1], {})
    assert [(session.node, session.pids) for session in made.nodes] == [("n1", tuple(range(1, 65)))]
    assert {choice.reason for choice in made.choices[64:]} == {
        "a session begins with at most 64 processes, and that of n1 has as many"
    }
    assert [session.left_out for session in made.nodes] == [86]


def test_what_a_sample_does_not_take_is_not_left_out() -> None:
    crowd = Node("n1", recordable=tuple(Process(pid, "worker") for pid in range(1, 101)))
    made = plan(Wish(Target(process_name="worker"), Purpose.PROFILING), [crowd], {("vpt", "worker"): Rates(sessions=1)})
    assert [(len(session.pids) < 100, session.left_out) for session in made.nodes] == [(True, 0)]


def test_the_estimate_follows_what_was_measured_and_says_so() -> None:
    wish = Wish(Target(pids=(13,)), period_ms=1000)
    assert plan(wish, [N1], {}).measured_sessions == 0
    seen = Observation(
        processes=1, recorded_ms=500, raw_bytes=50_000_000, lost_bytes=0, decode_ms=DECODE_FLOOR_MS + 1000
    )
    learnt = plan(wish, [N1], {("vpt", "gzip"): Rates().after(seen)})
    assert (learnt.expected_bytes, learnt.measured_sessions) == (100_000_000, 1)
    assert learnt.expected_decode_ms == DECODE_FLOOR_MS + 2000


def test_no_more_is_expected_than_the_buffers_hold() -> None:
    fast = {("vpt", "gzip"): Rates(bytes_per_second=1e12)}
    assert plan(Wish(Target(pids=(13,))), [N1], fast).expected_bytes == N1.trace_budget_bytes
    assert plan(Wish(Target(pids=(13,)), budget_bytes=5 << 20), [N1], fast).expected_bytes == 5 << 20


@given(
    sessions=st.lists(
        st.builds(
            Observation,
            processes=st.integers(0, 100),
            recorded_ms=st.integers(0, 60_000),
            raw_bytes=st.integers(0, 1 << 40),
            lost_bytes=st.integers(0, 1 << 40),
            decode_ms=st.integers(0, 1 << 30),
        ),
        max_size=8,
    ),
    period_ms=st.integers(1, LONGEST_MS),
    budget=st.integers(1, 1 << 40),
)
def test_whatever_was_seen_an_estimate_is_finite_and_within_the_budget(
    sessions: list[Observation], period_ms: int, budget: int
) -> None:
    rates = Rates()
    for seen in sessions:
        rates = rates.after(seen)
    expected = rates.expected_bytes(3, period_ms, budget)
    assert 0 <= expected <= budget
    assert rates.decoding_ms(expected) >= 0


@given(st.integers(100, 60_000), st.integers(1 << 20, 1 << 36))
def test_a_steady_target_is_estimated_exactly(recorded_ms: int, raw_bytes: int) -> None:
    rates = Rates()
    for _ in range(3):
        rates = rates.after(Observation(1, recorded_ms, raw_bytes, 0, 5000))
    assert abs(rates.expected_bytes(1, recorded_ms, 0) - raw_bytes) <= 1


def test_a_burst_of_a_millisecond_is_no_rate_but_many_of_them_are() -> None:
    steady = Rates().after(Observation(1, 1000, 1_000_000, 0, 600))
    assert steady.after(Observation(1, 1, 5_000_000, 0, 600)).bytes_per_second < 25e6
    assert steady.after(Observation(1, 50, 5_000_000, 0, 600)).bytes_per_second == pytest.approx(20.8e6)
    bursts = Rates()
    for _ in range(2000):
        bursts = bursts.after(Observation(1, 1, 5_000, 0, 600))
    assert bursts.bytes_per_second == pytest.approx(5e6, rel=0.01)


def test_a_session_is_recorded_by_what_its_node_says_of_its_process() -> None:
    node = Node("n3", recordable=(Process(31, "nginx", backend="kmod"),))
    found = plan(Wish(Target(process_name="nginx"), period_ms=100), [node], {})
    assert [session.backend for session in found.nodes] == ["kmod"]


def test_one_program_is_estimated_by_what_each_back_end_wrote_of_it() -> None:
    nodes = [Node(backend, (Process(1, "nginx", backend=backend),)) for backend in ("kmod", "vpt")]
    rates = {("kmod", "nginx"): Rates(100e6, sessions=3), ("vpt", "nginx"): Rates(2e6, sessions=5)}
    made = plan(Wish(Target(process_name="nginx"), period_ms=1000), nodes, rates)
    assert [(session.node, session.expected_bytes) for session in made.nodes] == [
        ("kmod", 100_000_000),
        ("vpt", 2_000_000),
    ]
    assert [session.heavy for session in made.nodes] == [True, False]
    assert made.measured_sessions == 3


def test_a_session_of_different_programs_is_decided_and_estimated_from_all_of_them() -> None:
    small = Process(1, "shell")
    large, troubled = Process(2, "java", backend="kmod"), Process(3, "proxy")
    rates = {
        ("vpt", "shell"): Rates(1e6, 10e6, sessions=4, blocks=10),
        ("kmod", "java"): Rates(60e6, 20e6, sessions=4, blocks=100_000),
        ("vpt", "proxy"): Rates(2e6, 10e6, sessions=2, blocks=100),
    }
    group = GroupOnNode(frozenset({1, 2, 3}), "0123456789ab")

    def session(*processes: Process) -> NodePlan:
        node = Node("n1", processes, cores=4, group=group)
        wish = Wish(Target(container_id="0123456789ab"))
        (found,) = plan(wish, [node], rates, issues={"proxy": 5}).nodes
        return found

    first, other_order = session(small, large, troubled), session(troubled, large, small)
    assert (first.period_ms, first.terms, first.backend) == (other_order.period_ms, other_order.terms, "kmod")
    told = {term.name: term for term in first.terms}
    assert (told["complexity"].value, told["stability"].value, told["overhead"].value) == (1.0, 1.0, 1.2)
    assert first.expected_bytes == 63_000 * first.period_ms
    assert first.expected_decode_ms == DECODE_FLOOR_MS + int((60e6 / 20e6 + 3e6 / 10e6) * first.period_ms)
    assert first.expected_overhead == 60e6 / 50e6
    assert session(small).period_ms < session(small, large).period_ms < first.period_ms


def test_rounds_among_processes_that_were_named_are_refused() -> None:
    for target in (Target(pids=(11, 12)), Target(container_id="0123456789ab")):
        with pytest.raises(InvalidArgument, match="3 rounds go from one process of a name to another") as refused:
            Wish(target, Purpose.PROFILING, rounds=3)
        assert refused.value.reason == "ROUNDS_TARGET"
    assert Wish(Target(pids=(11,)), Purpose.PROFILING, rounds=1).rounds == 1


def test_a_snapshot_that_no_recorder_takes_is_refused_before_it_is_begun() -> None:
    def planned(*backends: str) -> list[str]:
        nodes = [
            Node(f"n{number}", (Process(number, "nginx", backend=backend),)) for number, backend in enumerate(backends)
        ]
        return [one.backend for one in plan(Wish(Target(process_name="nginx"), snapshot=True), nodes, {}).nodes]

    with pytest.raises(InvalidArgument, match="vpt takes no snapshots") as refused:
        planned("vpt", "kmod")
    assert refused.value.reason == "SNAPSHOT_UNSUPPORTED" and "--backend perf" in refused.value.help
    assert planned("perf") == ["perf"]
    assert planned("vpt", "perf") == ["vpt", "perf"]


def test_a_back_end_that_no_node_has_is_refused_with_the_reason() -> None:
    without = Node("n4", others=(Process(41, "nginx"),), unavailable="its module is not loaded", way_out="load it")
    with pytest.raises(FailedPrecondition) as raised:
        match(Target(process_name="nginx", backend="kmod"), [without])
    assert raised.value.reason == "BACKEND_UNAVAILABLE"
    assert (raised.value.message, raised.value.help) == (
        "kmod: not on this machine (n4), because its module is not loaded",
        "load it",
    )
    # Where one has it, that one is meant.
    having = Node("n5", recordable=(Process(51, "nginx", backend="kmod"),))
    assert [found.node.name for found in match(Target(process_name="nginx"), [without, having])] == ["n5"]
