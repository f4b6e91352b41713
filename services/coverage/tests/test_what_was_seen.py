"""What recordings have seen, held against each other, and what later plans learn from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.mesh.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable

from .coverage_process import Coverage, profile_of, result_of, wish
from .served_controller import Controller
from .served_decoder import Decoder, with_rare

Operation = operation_pb2.Operation


async def test_what_has_been_seen_is_told_by_build_with_what_is_missing(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    for session in range(1, 5):
        decoder.tables.add(f"nodes/n1/sessions/s{session}", with_rare(session))
    decoder.tables.add("nodes/n1/sessions/old", {"get": [1]}, build_id="cd")
    request = coverage_pb2.GetCoverageRequest(of=coverage_pb2.SessionSet(target="redis-server"), functions=3)
    found = await coverage._call("GetCoverage", request, coverage_pb2.GetCoverageResponse)
    newer, older = found.versions
    assert (newer.build_id, newer.sessions, newer.functions.seen) == ("ab", 4, 12)
    # Eight of one session and none of two: (4 - 1) / 4 * 8 * 7 / 2.
    assert newer.functions.unseen == pytest.approx(21)
    assert newer.edges.seen == 11
    assert (older.build_id, older.sessions) == ("cd", 1)
    assert (len(found.functions), found.functions_total) == (3, 14)
    assert {replica.session: replica.functions_only_here for replica in found.replicas}["nodes/n1/sessions/s1"] == 2

    plan = coverage_pb2.PlanCoverageRequest(coverage=profile_of("redis-server", limit=0), outlook=True)
    planned = (await coverage._call("PlanCoverage", plan, coverage_pb2.PlanCoverageResponse)).plan
    assert planned.coverage[0].functions.seen == 12
    assert 0 < planned.coverage[0].missing_after < 21


async def test_two_sessions_are_held_against_each_other(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.tables.add("nodes/n1/sessions/a", {f"f{n}": [1] for n in range(30)})
    decoder.tables.add("nodes/n1/sessions/b", {"f0": [1], "slow": [1]})
    request = coverage_pb2.DiffCoverageRequest(
        a=coverage_pb2.SessionSet(sessions=["nodes/n1/sessions/a"]), b=coverage_pb2.SessionSet(sessions=["b"])
    )
    found = await coverage._call("DiffCoverage", request, coverage_pb2.DiffCoverageResponse)
    assert list(found.b) == ["nodes/n1/sessions/b"]
    assert found.functions[0].name == "slow"
    assert (found.functions[0].only_in, found.calls[0].caller, found.calls[0].name) == ("b", "main", "slow")
    assert list(found.without_calls) == []


async def test_sessions_without_calls_are_named_where_others_are_held_against_them(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.tables.add("nodes/n1/sessions/busy", {"f": [1]})
    decoder.tables.add("nodes/n1/sessions/slept", None)
    slept = coverage_pb2.SessionSet(sessions=["slept"])
    for a in (coverage_pb2.SessionSet(sessions=["busy"]), slept):
        request = coverage_pb2.DiffCoverageRequest(a=a, b=slept)
        found = await coverage._call("DiffCoverage", request, coverage_pb2.DiffCoverageResponse)
        assert list(found.without_calls) == ["nodes/n1/sessions/slept"]


async def test_sessions_that_are_not_there_or_not_said_are_refused(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    async def ask(of: coverage_pb2.SessionSet) -> object:
        request = coverage_pb2.GetCoverageRequest(of=of)
        return await coverage._call("GetCoverage", request, coverage_pb2.GetCoverageResponse)

    with pytest.raises(FailedPrecondition, match="session s9 is not decoded"):
        await ask(coverage_pb2.SessionSet(sessions=["s9"]))
    with pytest.raises(NotFound, match="named nobody"):
        await ask(coverage_pb2.SessionSet(target="nobody"))
    for wrong in (coverage_pb2.SessionSet(), coverage_pb2.SessionSet(sessions=["a"], target="b")):
        with pytest.raises(InvalidArgument, match="sessions, or an operation, or a target"):
            await ask(wrong)
    with pytest.raises(NotFound):
        await ask(coverage_pb2.SessionSet(operation="operations/000000000000-00000000"))
    controller.go_on.set()
    decoder.fail_with = Unavailable("the store is away", reason="STORE_AWAY", help="wait for it")
    failed = await coverage.wait((await coverage.begin(pids=(11,))).name)
    # Nobody has to ask again because the operation's own error might pass.
    with pytest.raises(FailedPrecondition, match=f"{failed.name} failed, STORE_AWAY: the store is away") as refused:
        await ask(coverage_pb2.SessionSet(operation=failed.name))
    assert (refused.value.reason, refused.value.help) == ("OPERATION_FAILED", "wait for it")


async def test_complexity_counts_what_all_sessions_have_seen_together(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = {11: "redis-server"}
    decoder.ran = with_rare

    async def complexity() -> str:
        (node,) = (await coverage.plan(pids=(11,), period_ms=0)).nodes
        return next(term.detail for term in node.period_terms if term.name == "complexity")

    assert await complexity() == "never seen running"
    # Main, three others, and two that only this session ran.
    for told in ("30 blocks seen", "40 blocks seen"):
        controller.go_on.clear()
        operation = await coverage.begin(pids=(11,))
        await coverage.until(operation.name, "RECORDING")
        controller.go_on.set()
        result_of(await coverage.wait(operation.name))
        assert await complexity() == told


async def test_blocks_are_at_least_as_many_as_any_session_saw_of_each_function(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = {11: "redis-server"}
    controller.period_s = 0.01
    controller.go_on.set()
    add, sessions = decoder.tables.add, 0

    async def seen(called: dict[str, Iterable[int]], blocks: int | None, build_id: str = "ab") -> str:
        """What a plan tells after a session of these functions, of each of which so many blocks ran."""
        nonlocal sessions
        sessions += 1
        add(f"nodes/n1/sessions/x{sessions}", called, build_id, blocks=blocks)
        result_of(await coverage.wait((await coverage.begin(pids=(11,))).name))
        (node,) = (await coverage.plan(pids=(11,), period_ms=0)).nodes
        return next(term.detail for term in node.period_terms if term.name == "complexity")

    # Decoded before there were blocks: main and two more have one each.
    assert await seen({"get": [1], "set": [1]}, None) == "3 blocks seen"
    assert await seen({"get": [1]}, 7) == "15 blocks seen"
    # Fewer are not taken away, nor is a function told twice that was built anew.
    assert await seen({"get": [1]}, 4, build_id="cd") == "15 blocks seen"
    assert await seen({"get": [1], "set": [1]}, 0) == "15 blocks seen"
    assert await seen({"set": [1]}, 9) == "25 blocks seen"


async def test_troubles_make_later_periods_longer(coverage: Coverage, controller: Controller, decoder: Decoder) -> None:
    controller.go_on.set()
    before = (await coverage.plan(pids=(13,), period_ms=0)).nodes[0]
    request = coverage_pb2.StartCoverageRequest(coverage=wish(pids=(13,)))
    request.coverage.purpose = coverage_pb2.PURPOSE_ANOMALY
    started = await coverage._call("StartCoverage", request, coverage_pb2.StartCoverageResponse)
    await coverage.wait(started.operation.name)
    after = (await coverage.plan(pids=(13,), period_ms=0)).nodes[0]

    def stability(node: coverage_pb2.NodePlan) -> float:
        return next(term.contribution for term in node.period_terms if term.name == "stability")

    assert (stability(before), stability(after) > 0) == (0, True)


async def test_one_anomaly_is_one_trouble_however_many_requests_are_about_it(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 24), "server")
    controller.go_on.set()

    async def begin(request_id: str, pid: int, cause: str = "") -> Operation:
        request = coverage_pb2.StartCoverageRequest(request_id=request_id, coverage=wish(pids=(pid,)))
        request.coverage.purpose, request.coverage.cause = coverage_pb2.PURPOSE_ANOMALY, cause
        return (await coverage._call("StartCoverage", request, coverage_pb2.StartCoverageResponse)).operation

    async def troubles() -> str:
        (node,) = (await coverage.plan(pids=(20,), period_ms=0)).nodes
        return next(term.detail for term in node.period_terms if term.name == "stability")

    # One after the other and at the same time.
    starts = (begin("same", 20) for _ in range(5))
    same = {operation.name for operation in (*await asyncio.gather(*starts), await begin("same", 20))}
    assert (len(same), await troubles()) == (1, "1.0 recent troubles")
    result_of(await coverage.wait(same.pop()))
    pods = [await begin(f"uid.{pid}", pid, cause="uid") for pid in controller.processes]
    assert await troubles() == "2.0 recent troubles"
    for operation in pods:
        result_of(await coverage.wait(operation.name))
