"""What requests may take together, and how often somebody may call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.node import Node, Process
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.plan import Policy, Wish, plan
from permille.coverage.domain.quota import CallerLimits, Limit, Quota, Room, Usage
from permille.coverage.domain.rates import DECODE_FLOOR_MS, Rates
from permille.coverage.domain.target import Target
from permille.coverage.domain.token_bucket import TokenBucket, TokenBuckets
from permille.coverage.service.wire import wish_of
from permille.mesh.errors import InvalidArgument, ResourceExhausted

NODES = [Node(f"n{n}", (Process(n + 1, "server", threads=2),), cores=4) for n in range(4)]
RATES = {("vpt", "server"): Rates(bytes_per_second=1e6, sessions=3)}
WISH = Wish(Target(process_name="server"), Purpose.ANOMALY)


def test_what_others_take_is_not_there_and_the_caller_has_a_limit_of_its_own() -> None:
    namespace = Limit(Quota(cores=8), Usage(cores=2))
    made = plan(WISH, NODES, RATES, room=Room([namespace]))
    assert len(made.nodes) == 3
    assert made.usage == Usage(6, 3e6, sum(session.expected_decode_ms for session in made.nodes))
    assert made.choices[3].reason == "the quota is 8 traced cores, of which other requests take 2"
    made = plan(WISH, NODES, RATES, room=Room([namespace, Limit(Quota(cores=2), owner="pager")]))
    assert made.choices[1].reason == "the quota of pager is 2 traced cores"


@pytest.mark.parametrize("quota", [Quota(cores=2), Quota(bytes_per_second=1e6), Quota(decode_ms=600)])
def test_full_now_is_told_from_too_small(quota: Quota) -> None:
    full = Usage(2, 1e6, 600)
    with pytest.raises(ResourceExhausted, match="other requests take") as failure:
        plan(WISH, NODES, RATES, room=Room([Limit(quota, full)]))
    assert failure.value.reason == "QUOTA_IN_USE"
    with pytest.raises(ResourceExhausted) as failure:
        plan(WISH, NODES, RATES, room=Room([Limit(Quota(cores=1), full)]))
    assert failure.value.reason == "NOTHING_WITHIN_QUOTA"


def test_rounds_take_what_their_largest_takes_for_one_runs_at_a_time() -> None:
    wish = Wish(Target(process_name="server"), Purpose.PROFILING, rounds=4)
    assert plan(wish, NODES, RATES).usage.cores == 2


@pytest.mark.parametrize(
    ("period_ms", "longest_ms", "longest_round_ms"), [(100, 60_000, 2000), (100, 400, 400), (5000, 60_000, 5000)]
)
def test_rounds_reserve_the_decoding_of_the_longest_that_one_may_become(
    period_ms: int, longest_ms: int, longest_round_ms: int
) -> None:
    rates = {("vpt", "server"): Rates(bytes_per_second=10e6, decoded_bytes_per_second=5e6, sessions=3)}
    wish = Wish(Target(process_name="server"), Purpose.PROFILING, rounds=4, period_ms=period_ms)
    policy = Policy(longest_ms=longest_ms)
    made = plan(wish, NODES, rates, policy=policy)
    assert made.usage.decode_ms == DECODE_FLOOR_MS + 2 * longest_round_ms
    assert made.nodes[0].expected_decode_ms == DECODE_FLOOR_MS + 2 * period_ms
    with pytest.raises(ResourceExhausted, match="ms of decoding"):
        plan(wish, NODES, rates, policy=policy, room=Room([Limit(Quota(decode_ms=made.usage.decode_ms - 1))]))


def test_a_request_makes_its_namespaces_quota_smaller_and_never_larger() -> None:
    policy = Policy(quotas={"shop": Quota(cores=4, decode_ms=9000)})
    asked = Quota(cores=2, bytes_per_second=1e6, decode_ms=10_000)
    assert policy.quota("shop", asked) == Quota(cores=2, bytes_per_second=1e6, decode_ms=9000)
    assert policy.quota("shop", Quota()) == policy.quota("shop") == Quota(cores=4, decode_ms=9000)
    assert policy.quota("other", asked) == asked
    wish = replace(WISH, namespace="shop", quota=asked)
    assert len(plan(wish, NODES, RATES, policy=policy).nodes) == 1


@pytest.mark.parametrize("wrong", [{"cores": -1}, {"bytes_per_second": float("nan")}, {"decode_ms": -5}])
def test_a_quota_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    target = coverage_pb2.Target(process_name="server")
    request = coverage_pb2.CoverageRequest(target=target, quota=coverage_pb2.NamespaceQuota(**wrong))
    with pytest.raises(InvalidArgument, match=f"the quota's {next(iter(wrong))} is"):
        wish_of(request)


def test_the_clusters_quota_holds_whatever_the_namespace() -> None:
    cluster = Limit(Quota(cores=6), Usage(cores=2), owner="the cluster")
    made = plan(WISH, NODES, RATES, room=Room([Limit(Quota(cores=100)), cluster]))
    assert len(made.nodes) == 2
    assert made.choices[2].reason == "the quota of the cluster is 6 traced cores, of which other requests take 2"


@pytest.mark.parametrize(
    ("listed", "trusted", "allowed"),
    [
        (None, False, {"default"}),
        (None, True, {"default", "shop", "bank"}),
        (("shop",), False, {"shop"}),
        (("shop",), True, {"shop"}),
        (("*",), False, {"default", "shop", "bank"}),
        ((), True, set()),
    ],
)
def test_a_caller_asks_for_its_namespaces_and_another_system_for_default_unless_told(
    listed: tuple[str, ...] | None, trusted: bool, allowed: set[str]
) -> None:
    limits = CallerLimits(namespaces=listed)
    assert {name for name in ("default", "shop", "bank") if limits.allows(name, trusted=trusted)} == allowed


def test_who_has_no_limits_has_those_of_default() -> None:
    policy = Policy(callers={"default": CallerLimits(60), "pager": CallerLimits(6, cores=4)})
    assert (policy.caller("pager").cores, policy.caller("other").calls_per_minute) == (4, 60)
    assert Policy().caller("any") == CallerLimits(600, 200, 0)


@given(st.integers(1, 1000), st.lists(st.floats(0, 100), max_size=200))
def test_never_more_calls_than_allowed_and_after_the_wait_there_is_one(per_minute: int, pauses: list[float]) -> None:
    bucket, now, granted = TokenBucket(per_minute, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = bucket.wait_s(now)
        granted += not wait
        assert granted <= per_minute * (1 + now / 60) + 1e-6
        if wait:
            now += wait + 1e-6
            assert bucket.wait_s(now) == 0.0
            granted += 1


def test_callers_who_were_quiet_are_forgotten_and_others_are_not() -> None:
    buckets = TokenBuckets(0.0)
    for number in range(1000):
        assert buckets.wait_s(f"caller-{number}", 1, 0.0) == 0.0
    assert buckets.wait_s("busy", 1, 59.0) == 0.0
    assert len(buckets) == 1001
    assert buckets.wait_s("busy", 1, 60.0) == pytest.approx(59.0)
    assert len(buckets) == 1


def test_a_quiet_minute_gives_a_minutes_calls() -> None:
    bucket = TokenBucket(3, 0.0)
    assert [bucket.wait_s(0.0) for _ in range(4)] == [0, 0, 0, pytest.approx(20.0)]
    assert [bucket.wait_s(600.0) for _ in range(4)] == [0, 0, 0, pytest.approx(20.0)]
