"""Rounds over pods, on a real coverage service; what the API server keeps is kept here."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.kubernetes.conditions import is_finished
from permille.coverage.domain.kubernetes.turns import round_of
from permille.coverage.service.kubernetes.cluster import REQUESTS, SESSIONS, Cluster, Object
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.pod_rounds import PodRounds
from permille.coverage.service.kubernetes.request_progress import RequestProgress
from permille.coverage.service.kubernetes.session_work import SessionWork, session_object, wish
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Aborted, Unavailable
from permille.mesh.server import ServerContext

from .coverage_process import Coverage
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder, each_with_its_own, with_rare
from .serving import serving

Round = tuple[str, int, str]


class Killed(BaseException):
    """The operator is no more."""


class Kept:
    """One TraceRequest and its TraceSessions; whoever calls is killed at the call after `calls_left`."""

    def __init__(self, request: Object) -> None:
        self.request = request
        self.sessions: dict[str, Object] = {}
        self.calls_left = 10**9
        self.after_its_effect = False

    async def get(self, plural: str, _namespace: str, name: str) -> Object | None:
        async with self._call():
            return copy.deepcopy(self.request if plural == REQUESTS else self.sessions.get(name))

    async def create(self, plural: str, _namespace: str, body: Object) -> Object | None:
        async with self._call():
            assert plural == SESSIONS
            name = body["metadata"]["name"]
            # What begins is written down.
            assert name == self.request["status"]["rounds"][-1]["session"] or name in self.sessions
            return None if name in self.sessions else self.sessions.setdefault(name, copy.deepcopy(body))

    async def patch_status(
        self, plural: str, _namespace: str, name: str, status: Mapping[str, Any], *, version: str = ""
    ) -> Object | None:
        async with self._call():
            one = self.request if plural == REQUESTS else self.sessions[name]
            known = one["metadata"].get("resourceVersion", "0")
            assert version in ("", known)
            one["metadata"]["resourceVersion"] = str(int(known) + 1)
            one["status"] = {**one.get("status", {}), **copy.deepcopy(dict(status))}
            return copy.deepcopy(one)

    def _call(self) -> AsyncExitStack:
        self.calls_left -= 1
        stack = AsyncExitStack()
        if self.calls_left < 0:
            if not self.after_its_effect:
                raise Killed
            stack.callback(_killed)
        return stack

    @property
    def rounds(self) -> list[Round]:
        told = self.request["status"]["rounds"]
        assert [one["number"] for one in told] == list(range(1, len(told) + 1))
        return [(one["podName"], one["periodMilliseconds"], one.get("next", "")) for one in told]


def _killed() -> None:
    raise Killed


def accepted(*nodes: str, rounds: int, longest_ms: int = 60_000) -> Object:
    """A request of a pod on each of the nodes."""
    places = [
        {
            "name": f"slow-{node}",
            "podName": f"web-{node}",
            "podUID": f"p-{node}",
            "nodeName": node,
            "container": "web",
            "containerID": f"{number}f1c9a0b77de",
        }
        for number, node in enumerate(nodes)
    ]
    return {
        "metadata": {"name": "slow", "namespace": "default", "uid": "r1", "generation": 1, "resourceVersion": "0"},
        "spec": {"purpose": "Profiling", "rounds": rounds},
        "status": {
            "plan": {"periodMilliseconds": 100, "longestPeriodMilliseconds": longest_ms, "budgetBytes": 0},
            "conditions": [],
            "sessions": places,
            "rounds": [round_of(places[0], 1, 100)],
        },
    }


async def begun(kept: Kept, coverage: Coverage, per_core_second: float = 1e-9) -> RequestProgress:
    """What an operator knows when it has worked on the request to its end."""
    cluster, operations = cast("Cluster", kept), Operations(coverage.channels, patience_s=60)
    request = copy.deepcopy(kept.request)
    progress = RequestProgress(cluster, request, now)
    if is_finished(request["status"]):
        return progress
    work = SessionWork(cluster, operations, now, node_patience_s=0)
    rounds = PodRounds(cluster, operations, work, min_gain=1e-9, min_gain_per_core_second=per_core_second)
    await rounds.run(request, progress, lambda *_: None)
    await progress.end()
    return progress


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def nodes(mesh_config: MeshConfig, controller: Controller, decoder: Decoder) -> AsyncIterator[list[Controller]]:
    """Three with one process each; the first two sessions have much in common that is rare."""
    async with AsyncExitStack() as stack:
        found = [controller, *(Controller(name) for name in ("n2", "n3"))]  # type: ignore[abstract]
        for node in found:
            node.processes = {11: "redis-server"}
            node.go_on.set()
            if node is not controller:
                await stack.enter_async_context(controller_serving(mesh_config, node))
        decoder.ran = each_with_its_own
        decoder.period_ms = lambda name: next(node.sessions[name].period_ms for node in found if name in node.sessions)
        yield found


def periods(nodes: list[Controller]) -> list[list[int]]:
    return [[session.period_ms for session in node.sessions.values()] for node in nodes]


async def test_a_pod_is_looked_at_for_longer_and_when_all_had_their_turn_the_first_one_again(
    coverage: Coverage, nodes: list[Controller]
) -> None:
    kept = Kept(accepted("n1", "n2", "n3", rounds=5))
    progress = await begun(kept, coverage)
    assert kept.rounds == [
        ("web-n1", 100, "Replica"),
        ("web-n2", 100, "Longer"),
        ("web-n2", 200, "Replica"),
        ("web-n3", 200, "Replica"),
        ("web-n1", 200, "Stop"),
    ]
    assert periods(nodes) == [[100, 200], [100, 200], [200]]
    told, status = kept.request["status"]["rounds"], kept.request["status"]
    assert told[-1]["reason"] == "5 rounds are as many as were asked for"
    assert "another time: " in told[-2]["reason"] and "another replica: " in told[2]["reason"]
    assert list(kept.sessions) == ["slow-n1", "slow-n2", "slow-n2-3", "slow-n3", "slow-n1-5"]
    assert (status["replicas"], status["finishedReplicas"], status["failedReplicas"]) == (3, 3, 0)
    (complete,) = status["conditions"]
    assert complete["message"].startswith("3 of 3 pods recorded and decoded in 5 rounds; ")
    assert len(progress.outcomes) == 5


async def test_no_round_is_longer_than_the_policy_allows(coverage: Coverage, nodes: list[Controller]) -> None:
    kept = Kept(accepted("n1", "n2", rounds=3, longest_ms=150))
    await begun(kept, coverage)
    assert kept.rounds[:2] == [("web-n1", 100, "Replica"), ("web-n2", 100, "Longer")]
    assert kept.rounds[2][1] == 150
    kept = Kept(accepted("n1", "n2", rounds=3, longest_ms=100))
    kept.request["metadata"]["uid"] = "r2"
    await begun(kept, coverage)
    assert {period_ms for _, period_ms, _ in kept.rounds} == {100}


async def test_rounds_end_when_another_one_is_not_worth_its_core_seconds(
    coverage: Coverage, nodes: list[Controller]
) -> None:
    kept = Kept(accepted("n1", "n2", rounds=5))
    await begun(kept, coverage, per_core_second=1e9)
    assert kept.rounds == [("web-n1", 100, "Stop")]
    assert kept.request["status"]["rounds"][0]["reason"].endswith(" for each core-second: 1e-09 and 1e+09 are wanted")


async def test_a_pod_that_cannot_be_recorded_is_passed_over_and_not_come_back_to(
    coverage: Coverage, nodes: list[Controller], decoder: Decoder
) -> None:
    decoder.ran = with_rare
    kept = Kept(accepted("gone", "n1", "n2", rounds=5))
    await begun(kept, coverage)
    assert [pod for pod, _, _ in kept.rounds] == ["web-gone", "web-n1", "web-n2", "web-n1", "web-n2"]
    told, status = kept.request["status"]["rounds"], kept.request["status"]
    assert told[0]["reason"].startswith("not recorded: no controller of node gone is running")
    assert (status["replicas"], status["finishedReplicas"], status["failedReplicas"]) == (3, 3, 1)
    (complete,) = status["conditions"]
    assert complete["reason"] == "PartlyDecoded" and complete["message"].startswith("1 of 5 rounds failed: ")


async def test_rounds_end_when_no_pod_can_be_recorded(coverage: Coverage, controller: Controller) -> None:
    kept = Kept(accepted("gone", "away", rounds=5))
    await begun(kept, coverage)
    assert [(pod, following) for pod, _, following in kept.rounds] == [("web-gone", "Replica"), ("web-away", "Stop")]
    told = [(one["type"], one["status"], one["reason"]) for one in kept.request["status"]["conditions"]]
    assert told == [("Complete", "False", "NodeNotFound"), ("Failed", "True", "NodeNotFound")]


@pytest.mark.parametrize("after_its_effect", [False, True])
async def test_wherever_operators_are_killed_the_next_ones_go_on_and_record_nothing_twice(
    coverage: Coverage, nodes: list[Controller], decoder: Decoder, after_its_effect: bool
) -> None:
    kept = Kept(accepted("n1", "n2", rounds=4))
    kept.after_its_effect = after_its_effect
    lives, ended = 0, False
    while not ended:
        lives += 1
        # Each one gets a call further than the one before.
        kept.calls_left = lives
        with suppress(Killed):
            await begun(kept, coverage)
            ended = True
    assert lives > 10
    assert kept.rounds == [
        ("web-n1", 100, "Replica"),
        ("web-n2", 100, "Longer"),
        ("web-n2", 200, "Replica"),
        ("web-n1", 200, "Stop"),
    ]
    assert periods(nodes) == [[100, 200], [100, 200], []]
    recorded = [session["status"]["recordings"] for session in kept.sessions.values()]
    assert len({name for names in recorded for name in names}) == len(recorded) == len(set(decoder.decoded)) == 4


async def test_who_does_not_know_what_another_operator_wrote_begins_nothing(
    coverage: Coverage, nodes: list[Controller]
) -> None:
    kept = Kept(accepted("n1", "n2", rounds=4))
    request = copy.deepcopy(kept.request)
    stalled = RequestProgress(cast("Cluster", kept), request, now)
    await begun(kept, coverage)
    written = copy.deepcopy(kept.rounds)
    with pytest.raises(Aborted, match="were changed meanwhile"):
        await stalled.decide([*stalled.rounds, round_of(request["status"]["sessions"][1], 2, 100)])
    assert kept.rounds == written


async def test_a_request_that_a_former_version_accepted_goes_on_with_its_pods(
    coverage: Coverage, nodes: list[Controller]
) -> None:
    request = accepted("n1", "n2", "n3", rounds=3)
    status = request["status"]
    first, second, _ = status["sessions"]
    # As that one wrote it: nothing of the round that goes on, nor of how long one may be.
    status["rounds"] = [{"session": first["name"], "reason": "one session alone does not tell what is missing"}]
    del status["plan"]["longestPeriodMilliseconds"]
    kept, operations = Kept(request), Operations(coverage.channels, patience_s=60)
    for place in (first, second):
        body = session_object(request, place)
        kept.sessions[place["name"]] = body
        await operations.start(f"r1.{place['podUID']}", wish("default", body["spec"]))
        while not (nodes[0].sessions if place is first else nodes[1].sessions):
            await asyncio.sleep(0.02)
    await begun(kept, coverage)
    assert kept.rounds == [("web-n1", 100, "Replica"), ("web-n2", 100, "Replica"), ("web-n3", 100, "Stop")]
    assert status["rounds"][0]["reason"] == "one session alone does not tell what is missing"
    assert periods(nodes) == [[100], [100], [100]]


async def test_a_coverage_of_a_former_version_is_waited_for(mesh_config: MeshConfig, coverage: Coverage) -> None:
    async def setup(_: ServerContext) -> None:
        """It knows no JudgeRound."""

    await coverage.stop()
    async with serving("coverage", mesh_config, setup, "former"):
        operations = Operations(coverage.channels, patience_s=0.1)
        with pytest.raises(Unavailable, match="of a former version"):
            await operations.judge(coverage_pb2.JudgeRoundRequest(sessions=["s1"]))
