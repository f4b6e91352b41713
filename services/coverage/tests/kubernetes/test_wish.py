"""What a TraceRequest gets under its namespace's TracePolicy, and how its conditions are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from permille.coverage.domain.kubernetes.conditions import (
    COMPLETE,
    FAILED,
    camel_case,
    from_timestamp,
    is_finished,
    timestamp,
    with_condition,
    with_conditions,
)
from permille.coverage.domain.kubernetes.wish import Policy, Wish, policy_of, wish_of
from permille.coverage.domain.quota import Quota
from permille.coverage.service.kubernetes.session_work import session_object, wish
from permille.coverage.service.wire import wish_of as wish_of_request
from permille.mesh.errors import FailedPrecondition, InvalidArgument

POLICY: dict[str, dict[str, Any]] = {
    "defaults": {"period": "2s", "budget": "32Mi", "maxReplicas": 2},
    "quotas": {
        "activeRequests": 1,
        "maxReplicas": 3,
        "maxPeriod": "5s",
        "maxBudget": "64Mi",
        "cores": 4,
        "bytesPerSecond": "100Mi",
        "decodeMilliseconds": 60_000,
    },
    "retention": {"ttlSecondsAfterFinished": 60, "ttlSecondsAfterRecorded": 3600},
    "weights": {"priority": 0, "complexity": 10, "stability": 90},
}

QUOTA = {"cores": 4, "bytes_per_second": 100 << 20, "decode_ms": 60_000}


def test_what_is_not_asked_for_comes_from_the_policy() -> None:
    assert wish_of({}, Policy()) == Wish(0, 0, 1, 86_400)
    assert wish_of({}, policy_of(POLICY)) == Wish(
        2000, 32 << 20, 2, 60, POLICY["weights"], allowed=3, quota=QUOTA, retention_s=3600, longest_ms=5000
    )
    asked = {"period": "500ms", "budget": "1Gi", "maxReplicas": 3, "ttlSecondsAfterFinished": 0}
    assert wish_of(asked, Policy()) == Wish(500, 1 << 30, 3, 0)


def test_who_says_no_number_gets_no_more_than_is_allowed() -> None:
    quotas = {"maxPeriod": "1s", "maxBudget": "1Mi", "maxReplicas": 2}
    over = policy_of({"defaults": {"period": "10s", "budget": "2Mi", "maxReplicas": 3}, "quotas": quotas})
    assert wish_of({}, over) == Wish(1000, 1 << 20, 2, 86_400, allowed=2, longest_ms=1000)
    # Decided, or the node's own, and yet no more.
    nothing_said = wish_of({}, policy_of({"quotas": quotas}))
    assert (nothing_said.period_ms, nothing_said.longest_ms, nothing_said.budget_bytes) == (0, 1000, 1 << 20)


@pytest.mark.parametrize("purpose", ["Anomaly", "Profiling"])
def test_how_many_is_for_the_purpose_unless_it_is_asked_for(purpose: str) -> None:
    wish = wish_of({"purpose": purpose, "priority": 0}, policy_of(POLICY))
    assert (wish.replicas, wish.priority) == (0, 0)
    assert wish.most == (3, "quotas.maxReplicas of the TracePolicy is 3")
    assert wish_of({"purpose": purpose, "maxReplicas": 2}, policy_of(POLICY)).most == (2, "maxReplicas is 2")
    assert wish_of({"purpose": "Profiling", "rounds": 2}, Policy()).most == (2, "the request has 2 rounds")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"period": "6s"}, "QUOTA_PERIOD"),
        ({"budget": "65Mi"}, "QUOTA_BUDGET"),
        ({"maxReplicas": 4}, "QUOTA_REPLICAS"),
    ],
)
def test_more_than_the_policy_allows_is_refused(asked: dict[str, object], reason: str) -> None:
    with pytest.raises(FailedPrecondition, match="more than this namespace allows") as refused:
        wish_of(asked, policy_of(POLICY))
    assert refused.value.reason == reason


def test_the_policys_weights_and_quota_reach_coverage_and_without_any_nothing_is_said() -> None:
    metadata = {"name": "r", "uid": "u"}
    place = dict.fromkeys(("name", "nodeName", "podName", "podUID", "container", "containerID"), "0123456789ab")
    plan: dict[str, object] = {"periodMilliseconds": 0, "budgetBytes": 0}
    for more in ({}, {"weights": POLICY["weights"], "quota": QUOTA}):
        accepted = {"metadata": metadata, "spec": {"purpose": "OnDemand"}, "status": {"plan": plan | more}}
        asked = wish_of_request(wish("shop", session_object(accepted, place)["spec"]))
        assert (asked.weights, asked.quota) == (more.get("weights", {}), Quota(**more.get("quota", {})))


def test_how_long_recordings_are_kept_reaches_coverage() -> None:
    place = dict.fromkeys(("name", "nodeName", "podName", "podUID", "container", "containerID"), "0123456789ab")
    plan = {"periodMilliseconds": 0, "budgetBytes": 0}
    for more, retention_s in (({}, 0), ({"ttlSecondsAfterRecorded": 3600}, 3600)):
        request = {
            "metadata": {"name": "r", "uid": "u"},
            "spec": {"purpose": "OnDemand"},
            "status": {"plan": plan | more},
        }
        assert wish("shop", session_object(request, place)["spec"]).retention_s == retention_s


def test_the_priority_reaches_coverage_and_without_one_it_is_the_purposes() -> None:
    place = dict.fromkeys(("name", "nodeName", "podName", "podUID", "container", "containerID"), "0123456789ab")
    status = {"plan": {"periodMilliseconds": 0, "budgetBytes": 0}}
    for spec, priority in (({}, None), ({"priority": 0}, 0), ({"priority": 100}, 100)):
        request = {"metadata": {"name": "r", "uid": "u"}, "spec": {"purpose": "Profiling", **spec}, "status": status}
        assert wish_of_request(wish("shop", session_object(request, place)["spec"])).priority == priority


def test_what_is_no_number_is_refused() -> None:
    for spec in ({"period": "soon"}, {"budget": "64MB"}):
        with pytest.raises(InvalidArgument):
            wish_of(spec, Policy())


def test_of_what_has_failed_complete_says_why_too() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    begun = with_conditions([], (COMPLETE, False, "Recording", "0 of 1"), now=at)
    failed = with_conditions(begun, (FAILED, True, "Gone", "it ended"), now=at)
    told = [(one["type"], one["status"], one["reason"], one["message"]) for one in failed]
    assert told == [(COMPLETE, "False", "Gone", "it ended"), (FAILED, "True", "Gone", "it ended")]


def test_a_transition_is_dated_only_when_the_status_changes() -> None:
    first, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    begun = with_condition([], COMPLETE, False, "Recording", "0 of 2", now=first)
    going_on = with_condition(begun, COMPLETE, False, "Decoding", "1 of 2", now=later)
    assert going_on[0]["lastTransitionTime"] == timestamp(first) and going_on[0]["reason"] == "Decoding"
    done = with_condition(going_on, COMPLETE, True, "Decoded", "", now=later)
    assert from_timestamp(done[0]["lastTransitionTime"]) == later
    assert not is_finished({"conditions": going_on}) and is_finished({"conditions": done}) and not is_finished(None)
    assert [one["type"] for one in with_condition(done, FAILED, False, "Fine", "", now=later)] == [COMPLETE, FAILED]


def test_reasons_are_written_as_kubernetes_writes_them() -> None:
    assert [camel_case(word) for word in ("NOT_RECORDABLE", "DECODING", "")] == ["NotRecordable", "Decoding", "Unknown"]
