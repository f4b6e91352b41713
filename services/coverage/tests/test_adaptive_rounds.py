"""Rounds: one replica after the other, until another one is not worth it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.errors import FailedPrecondition, InvalidArgument

from .coverage_process import Coverage, profile_of, result_of, start_profile
from .served_controller import Controller
from .served_decoder import USUAL, Decoder, each_with_its_own, with_rare


async def test_rounds_go_to_another_replica_while_new_functions_come_and_end_when_none_do(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    decoder.ran = lambda session: with_rare(session) if session < 4 else USUAL
    # A session has five MiB. After the eighth 13.1 are thought to be unseen, and the next to bring 0.71.
    operation = await start_profile(coverage, profile_of("redis-server", limit=9, min_gain=0.15))
    result = result_of(await coverage.wait(operation.name))
    assert [done.new_functions for done in result.rounds] == [6, 2, 2, 0, 0, 0, 0, 0]
    assert {done.next for done in result.rounds[:-1]} == {coverage_pb2.Round.ACTION_REPLICA}
    assert result.rounds[-1].expected_new_functions == pytest.approx(13.125 * 6 / (8 * 13.125 + 6))
    assert result.rounds[-1].next == coverage_pb2.Round.ACTION_STOP
    assert "are wanted" in result.rounds[-1].reason
    assert len(result.sessions) == len(result.rounds) == controller.starts == len(decoder.decoded)


async def test_after_a_longer_look_the_next_replica_is_looked_at_for_as_long(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys((100, 101, 102), "redis-server")
    controller.go_on.set()
    decoder.ran = each_with_its_own
    decoder.period_ms = lambda session: controller.sessions[session].period_ms
    operation = await start_profile(coverage, profile_of("redis-server", limit=4, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    replica, longer = coverage_pb2.Round.ACTION_REPLICA, coverage_pb2.Round.ACTION_LONGER
    assert [done.next for done in result.rounds[:-1]] == [replica, longer, replica]
    planned = [(list(node.pids), node.period_ms) for node in result.plan.nodes]
    assert planned == [([100], 100), ([101], 100), ([101], 200), ([102], 200)]
    assert [session.period_ms for session in controller.sessions.values()] == [100, 100, 200, 200]
    first, *_, last = result.plan.nodes
    assert last.expected_bytes == 2 * first.expected_bytes
    assert last.expected_core_seconds == 2 * first.expected_core_seconds


async def test_rounds_of_named_processes_are_refused_before_anything_begins(
    coverage: Coverage, controller: Controller
) -> None:
    request = profile_of("", limit=3)
    request.target.pids.extend((11, 12))
    with pytest.raises(InvalidArgument, match="the target is pids") as refused:
        await start_profile(coverage, request)
    assert (refused.value.reason, controller.plans) == ("ROUNDS_TARGET", 0)


async def test_no_more_rounds_are_made_than_asked_for(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.ran = with_rare
    operation = await start_profile(coverage, profile_of("redis-server", limit=2, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert result.rounds[-1].reason == "2 rounds are as many as were asked for"
    # Another process each time, while there is one.
    assert [list(node.pids) for node in result.plan.nodes] == [[11], [12]]


async def test_one_round_records_one_replica(coverage: Coverage, controller: Controller, decoder: Decoder) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    decoder.ran = with_rare
    operation = await start_profile(coverage, profile_of("redis-server", limit=1))
    result = result_of(await coverage.wait(operation.name))
    assert (len(result.sessions), controller.starts) == (1, 1)
    assert [(one.reason, one.instances) for one in result.plan.not_planned] == [("rounds: at most 1", 9)]


async def test_a_coverage_killed_between_rounds_goes_on_with_the_next_one_and_repeats_none(
    coverage: Coverage, controller: Controller, decoder: Decoder, another: Coverage
) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    second_decode = asyncio.Event()

    def held(session: int) -> dict[str, Iterable[int]]:
        if session == 2:
            second_decode.set()
        return with_rare(session)

    decoder.ran = held
    operation = await start_profile(coverage, profile_of("redis-server", limit=4, min_gain=1e-9))
    await second_decode.wait()
    await coverage.kill()
    await another.start()
    result = result_of(await another.wait(operation.name))
    assert len(result.rounds) == 4
    assert controller.starts == len(decoder.decoded) == len(result.sessions) == 4
    assert len({pid for node in result.plan.nodes for pid in node.pids}) == 4


async def test_a_replica_that_ended_meanwhile_is_passed_over(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys((100, 101, 102), "redis-server")
    controller.ends_after_plan = 101
    controller.go_on.set()
    decoder.ran = with_rare
    operation = await start_profile(coverage, profile_of("redis-server", limit=3, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert [done.reason.startswith("not recorded") for done in result.rounds] == [False, True, False]
    assert [list(node.pids) for node in result.plan.nodes] == [[100], [101], [102]]
    assert len(result.sessions) == 2


async def test_a_later_round_whose_node_another_request_has_is_passed_over(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.go_on.clear()
    decoder.ran = with_rare
    profile = await start_profile(coverage, profile_of("redis-server", limit=2, min_gain=1e-9))
    await coverage.until(profile.name, "DECODING")
    controller.go_on.clear()
    other = await coverage.begin(pids=(13,))
    assert not (await coverage.until(other.name, "RECORDING")).done
    decoder.go_on.set()
    result = result_of(await coverage.wait(profile.name))
    assert result.rounds[1].reason == "not recorded: another request's heavy session records on nodes/n1"
    assert len(result.sessions) == 1
    controller.go_on.set()
    result_of(await coverage.wait(other.name))
    assert controller.most_at_once == 1


async def test_a_session_that_is_deleted_meanwhile_counts_no_longer(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    decoder.ran = with_rare
    decoder.deleted = lambda session: [1] if session == 2 else []
    operation = await start_profile(coverage, profile_of("redis-server", limit=3, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert [done.functions for done in result.rounds] == [6, 6, 8]
    assert len(result.sessions) == 3


async def test_rounds_end_with_what_there_is_when_the_newest_session_is_deleted(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(100, 110), "redis-server")
    controller.go_on.set()
    decoder.ran = with_rare
    decoder.deleted = lambda session: [2] if session == 2 else []
    operation = await start_profile(coverage, profile_of("redis-server", limit=5, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert [done.next == coverage_pb2.Round.ACTION_STOP for done in result.rounds] == [False, True]
    assert result.rounds[1].reason.startswith("what it brought is not known: session ")
    assert len(result.sessions) == 2


async def test_a_later_round_that_fails_costs_only_itself(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys((100, 101, 102), "redis-server")
    controller.go_on.set()

    def failing_once(session: int) -> dict[str, Iterable[int]]:
        if session == 2:
            raise FailedPrecondition("this cannot be decoded", reason="BROKEN")
        return with_rare(session)

    decoder.ran = failing_once
    operation = await start_profile(coverage, profile_of("redis-server", limit=3, min_gain=1e-9))
    result = result_of(await coverage.wait(operation.name))
    assert [done.reason.startswith("not recorded: this cannot") for done in result.rounds] == [False, True, False]
    assert len(result.sessions) == 2
    assert [failure.message for failure in result.failures] == ["this cannot be decoded"]
