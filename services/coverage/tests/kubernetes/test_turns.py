"""Whose turn it is of pods that are looked at one after the other."""

from __future__ import annotations

import re
from typing import Any

import pytest
from permille.coverage.domain.kubernetes.instances import Container
from permille.coverage.domain.kubernetes.turns import Turns, is_last, judged, place_of, round_of
from permille.coverage.domain.kubernetes.wish import Policy, wish_of
from permille.coverage.domain.node import Node
from permille.coverage.domain.rounds import Action
from permille.coverage.domain.spatial_sampler import Choice, Instance
from permille.coverage.service.kubernetes.request_status import accepted

PODS = ("a", "b", "c")


def place(pod: str) -> dict[str, Any]:
    return {"name": f"slow-{pod}", "podName": f"web-{pod}", "podUID": pod, "nodeName": "n1"}


def test_each_pod_has_its_turn_and_then_the_one_whose_turn_was_longest_ago() -> None:
    had = list[tuple[str, bool]]()
    for expected in ("a", "b", "c", "a", "b"):
        assert Turns(PODS, had).following == expected
        had.append((expected, True))
    # A longer look at one is a turn too.
    assert Turns(PODS, [("a", True), ("b", True), ("a", True), ("c", True)]).following == "b"
    assert Turns(["a"], [("a", True)]).following == "a"


def test_nobody_comes_back_to_a_pod_that_could_not_be_recorded() -> None:
    had = [("a", True), ("b", False), ("c", True)]
    assert Turns(PODS, had).following == "a"
    assert Turns(PODS, [*had, ("a", False), ("c", False)]).following is None
    assert Turns(PODS, [("a", False)]).following == "b"


def test_it_is_known_whether_there_are_pods_without_a_turn() -> None:
    assert Turns(PODS, [("a", True), ("b", False)]).unused
    assert not Turns(PODS, [("a", True), ("b", False), ("c", True)]).unused


def test_a_second_recording_of_a_pod_has_a_name_and_an_id_of_its_own() -> None:
    first = round_of(place("a"), 1, 0)
    again = round_of(place("a"), 2, 200, [first])
    other = round_of(place("b"), 3, 200, [first, again])
    assert [one["session"] for one in (first, again, other)] == ["slow-a", "slow-a-2", "slow-b"]
    places = [place(pod) for pod in PODS]
    found = [place_of(one, places) for one in (first, again, other)]
    assert [(one["name"], one["turn"], one["periodMilliseconds"]) for one in found] == [
        ("slow-a", "a", 0),
        ("slow-a-2", "a.round-2", 200),
        ("slow-b", "b", 200),
    ]


def test_only_a_round_that_is_over_may_be_the_last() -> None:
    present = round_of(place("a"), 1, 0)
    assert [
        is_last(one) for one in (present, judged(present, Action.LONGER, ""), judged(present, Action.STOP, ""))
    ] == [
        False,
        False,
        True,
    ]
    assert judged(present, Action.LONGER, "200 ms")["next"] == "Longer"


@pytest.mark.parametrize("mark", [".", ".-"])
def test_the_name_of_a_session_is_not_cut_between_a_dot_and_a_dash(mark: str) -> None:
    label = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
    # As long as a name may be, and the end of what is kept of it is the mark.
    begin = "a" * (239 - len(mark))
    name = begin + mark + "b" * (253 - 239)
    pod = Container(1, "web", pod="web-0", pod_uid="p0", container="web", container_id="4f1c9a0b77de")
    wish = wish_of({"purpose": "Profiling", "rounds": 64}, Policy())
    choices = [Choice(Instance(Node("n1", (pod,)), pod), True, "in its turn")]
    (session,) = accepted({"name": name, "uid": "r1"}, wish, choices).decided["sessions"]
    first = round_of(session, 1, 0)
    for round_ in (first, round_of(session, 64, 0, [first])):
        assert round_["session"].startswith(f"{begin}-")
        assert len(round_["session"]) <= 253
        assert all(label.fullmatch(part) for part in round_["session"].split("."))


@pytest.mark.parametrize(("rounds", "expected"), [(0, None), (3, [("slow", 1, "web-0", 500)])])
def test_an_accepted_request_has_its_first_round_and_how_long_one_may_be(
    rounds: int, expected: list[tuple[str, int, str, int]] | None
) -> None:
    pod = Container(1, "web", pod="web-0", pod_uid="p0", container="web", container_id="4f1c9a0b77de")
    spec = {"purpose": "Profiling", "period": "500ms", **({"rounds": rounds} if rounds else {})}
    wish = wish_of(spec, Policy(longest_ms=800))
    choices = [Choice(Instance(Node("n1", (pod,)), pod), True, "in its turn")]
    status = accepted({"name": "slow", "uid": "r1"}, wish, choices).decided
    assert status["plan"]["longestPeriodMilliseconds"] == 800
    found = [
        (one["session"].rpartition("-")[0], one["number"], one["podName"], one["periodMilliseconds"])
        for one in status.get("rounds", [])
    ]
    assert (found or None) == expected
