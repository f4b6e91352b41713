"""Rounds that somebody else conducts: coverage decides about them as about its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.errors import FailedPrecondition, InvalidArgument

from .coverage_process import Coverage, profile_of, result_of, start_profile
from .served_controller import Controller
from .served_decoder import Decoder, each_with_its_own, with_rare

Round = coverage_pb2.Round
TINY = coverage_pb2.AdaptiveRounds(limit=9, min_gain=1e-9, min_gain_per_core_second=1e-9)


async def judged(
    coverage: Coverage,
    sessions: Sequence[str],
    wanted: coverage_pb2.AdaptiveRounds = TINY,
    *,
    unused: bool = True,
    longest_ms: int = 0,
) -> coverage_pb2.JudgeRoundResponse:
    request = coverage_pb2.JudgeRoundRequest(
        sessions=sessions, rounds=wanted, done=len(sessions), unused=unused, longest_ms=longest_ms
    )
    return await coverage._call("JudgeRound", request, coverage_pb2.JudgeRoundResponse)


@pytest.mark.slow
async def test_each_of_the_same_rounds_is_judged_as_in_an_operation(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys((100, 101, 102), "redis-server")
    controller.go_on.set()
    decoder.ran = each_with_its_own
    decoder.period_ms = lambda session: controller.sessions[session].period_ms
    operation = await start_profile(coverage, profile_of("redis-server", limit=5, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    wanted = coverage_pb2.AdaptiveRounds(limit=5, min_gain=1e-9)
    sessions, period_ms, found = list[str](), 100, list[int]()
    for number, own in enumerate(result.rounds, 1):
        sessions.append(f"nodes/n1/sessions/again-{number}")
        decoder.tables.add(sessions[-1], each_with_its_own(number), target="again", period_ms=period_ms)
        pids = {pid for node in result.plan.nodes[:number] for pid in node.pids}
        answer = await judged(coverage, sessions, wanted, unused=len(pids) < 3)
        own.ClearField("nodes")
        assert answer.round == own
        period_ms = answer.period_ms
        found.append(period_ms)
    assert found == [100, 200, 200, 200, 0]
    assert [own.next for own in result.rounds[:2]] == [Round.ACTION_REPLICA, Round.ACTION_LONGER]


async def test_a_period_is_not_doubled_beyond_what_is_allowed(coverage: Coverage, decoder: Decoder) -> None:
    sessions = [f"nodes/n1/sessions/s{number}" for number in (1, 2)]
    for number, session in enumerate(sessions, 1):
        decoder.tables.add(session, each_with_its_own(number), period_ms=1500)
    assert (await judged(coverage, sessions)).period_ms == 2000
    assert (await judged(coverage, sessions, longest_ms=1800)).period_ms == 1800
    # Coverage's own limit holds too.
    assert (await judged(coverage, sessions, longest_ms=60_000)).period_ms == 2000
    answer = await judged(coverage, sessions, longest_ms=1500)
    assert (answer.round.next, answer.period_ms) == (Round.ACTION_REPLICA, 1500)


async def test_both_thresholds_are_the_requests_and_else_the_services(coverage: Coverage, decoder: Decoder) -> None:
    decoder.tables.add("nodes/n1/sessions/s1", with_rare(1))

    async def reason(**wanted: float) -> str:
        answer = await judged(coverage, ["s1"], coverage_pb2.AdaptiveRounds(limit=9, **wanted))
        assert (answer.round.next == Round.ACTION_STOP) == ("are wanted" in answer.round.reason)
        return str(answer.round.reason)

    assert (await reason()).endswith(": 1 and 0.5 are wanted")
    assert (await reason(min_gain=1e-9, min_gain_per_core_second=50)).endswith(": 1e-09 and 50 are wanted")
    assert "wanted" not in await reason(min_gain=1e-9, min_gain_per_core_second=1e-9)


async def test_earlier_sessions_of_the_program_count_and_those_of_another_build_do_not(
    coverage: Coverage, decoder: Decoder
) -> None:
    decoder.tables.add("nodes/n1/sessions/before", with_rare(1))
    decoder.tables.add("nodes/n1/sessions/other-build", with_rare(2), build_id="cd")
    decoder.tables.add("nodes/n1/sessions/now", with_rare(3))
    brought = (await judged(coverage, ["now"])).round
    # What always runs was seen before; the two of the other build are none of these.
    assert (brought.new_functions, brought.functions) == (2, 8)


async def test_what_is_not_decoded_or_not_said_is_refused(coverage: Coverage, decoder: Decoder) -> None:
    with pytest.raises(FailedPrecondition, match="session s9 is not decoded"):
        await judged(coverage, ["s9"])
    with pytest.raises(InvalidArgument, match="sessions must name sessions"):
        await judged(coverage, [])


async def test_a_gain_that_no_round_can_reach_is_refused_wherever_it_is_asked_for(
    coverage: Coverage, decoder: Decoder
) -> None:
    decoder.tables.add("nodes/n1/sessions/s1", with_rare(1))
    for name, gain in product(("min_gain", "min_gain_per_core_second"), (-5.0, float("nan"), float("inf"))):
        rounds = coverage_pb2.AdaptiveRounds(limit=9, **{name: gain})
        profile = profile_of("gzip", limit=9)
        profile.rounds.CopyFrom(rounds)
        with pytest.raises(InvalidArgument, match=f"{name} is {gain}") as refused:
            await start_profile(coverage, profile)
        assert (refused.value.reason, refused.value.metadata) == ("GAIN_OUT_OF_RANGE", {"gain": name})
        with pytest.raises(InvalidArgument, match=f"{name} is {gain}"):
            await judged(coverage, ["s1"], rounds)


async def test_more_rounds_than_there_may_be_are_refused_wherever_they_are_asked_for(
    coverage: Coverage, decoder: Decoder
) -> None:
    decoder.tables.add("nodes/n1/sessions/s1", with_rare(1))
    await judged(coverage, ["s1"], coverage_pb2.AdaptiveRounds(limit=64))
    with pytest.raises(InvalidArgument, match="65 rounds are more than 64") as started:
        await start_profile(coverage, profile_of("gzip", limit=65))
    with pytest.raises(InvalidArgument, match="65 rounds are more than 64") as asked:
        await judged(coverage, ["s1"], coverage_pb2.AdaptiveRounds(limit=65))
    assert (started.value.reason, started.value.help) == (asked.value.reason, asked.value.help)
    assert asked.value.reason == "TOO_MANY_ROUNDS"
