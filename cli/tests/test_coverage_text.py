"""What `permille coverage` shows, from answers as the coverage service gives them."""

from __future__ import annotations

from collections.abc import Iterable

from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.rendering.coverage_text import coverage_text, plan_text
from permille.cli.rendering.operation_text import listed_json, operation_lines, operation_table
from permille.cli.rendering.trace_lines import not_planned_lines, plan_json
from rich.console import Console, RenderableType


def shown(parts: Iterable[RenderableType]) -> str:
    console = Console(width=160, record=True)
    for part in parts:
        console.print(part)
    return console.export_text()


def test_call_paths_stand_under_their_callers_and_the_rest_is_counted() -> None:
    found = coverage_pb2.GetCoverageResponse(paths_total=9, path_calls_left_out=1234, edges_total=3)
    found.edges.add(caller="main", callee="get", callee_module="/bin/server", calls=7, sessions=2, share=0.7)
    found.paths.add(name="main", module="/bin/server", calls=1, sessions=2, total_instructions=100, share=1)
    found.paths.add(name="get", module="/bin/server", caller=1, calls=7, sessions=2, share=0.7)
    found.paths.add(name="reply", module="/bin/server", caller=2, calls=7, sessions=1, share=0.2)
    found.paths.add(name="set", module="/bin/server", caller=1, calls=3, sessions=1, share=0.1)
    text = shown(coverage_text(found))
    rows = [line.split("server")[0].rstrip() for line in text.splitlines() if "server" in line]
    assert rows == ["main > get", "main", " get", "  reply", " set"]
    assert "1,234 calls have other paths; at least 9 in all: --paths" in " ".join(text.split())
    assert "2 more: --top 3" in text


def test_sessions_without_calls_are_said_to_have_none_and_why() -> None:
    found = coverage_pb2.GetCoverageResponse()
    found.replicas.add(session="nodes/n1/sessions/slept", raw_bytes=64)
    text = shown(coverage_text(found))
    assert "what was recorded has no calls: in nodes/n1/sessions/slept the program slept or waited, or nothing" in text
    assert ("FUNCTION " in text, "MODULE" in text) == (False, False)
    found.replicas.add(session="nodes/n1/sessions/idle")
    assert "in all of its 2 sessions the program slept" in shown(coverage_text(found))


def test_a_plan_says_how_slow_it_makes_the_program_or_that_nobody_knows() -> None:
    plan = coverage_pb2.Plan()
    plan.nodes.add(node="nodes/n1", pids=[1], period_ms=100, expected_bytes_per_second=21e6)
    text = shown(plan_text(plan))
    assert "slower by an unknown share: nobody measured it" in text
    assert "at most 21.0 MB/s of trace from a process" in text
    assert "what will be missing is unknown" in text
    node: dict[str, object] = plan_json(plan)["nodes"][0]  # type: ignore[index]
    assert node["expected_slowdown"] is None
    plan.nodes[0].expected_slowdown = 0.021
    assert "while it is recorded: 2.1 % slower; at most" in shown(plan_text(plan))


def test_what_is_not_planned_is_told_by_reason() -> None:
    plan = coverage_pb2.Plan()
    plan.nodes.add(node="nodes/n1", pids=range(64), left_out=36)
    plan.not_planned.add(reason="it is full", instances=36)
    assert not_planned_lines(plan) == ["not planned, 36 of 100 processes: it is full"]
    assert "not planned, 36 of 100 processes: it is full" in shown(plan_text(plan))
    told = plan_json(plan)
    node: dict[str, object] = told["nodes"][0]  # type: ignore[index]
    assert node["left_out"] == 36
    assert told["not_planned"] == [{"reason": "it is full", "instances": 36}]
    assert not_planned_lines(coverage_pb2.Plan()) == []


def operation(**more: object) -> operation_pb2.Operation:
    found = operation_pb2.Operation(name="operations/1", request_id="r1", caller="pager", **more)  # type: ignore[arg-type]
    target = coverage_pb2.Target(pod="shop/cart-0", node="nodes/n1")
    wish = coverage_pb2.CoverageRequest(target=target, purpose=coverage_pb2.PURPOSE_ANOMALY)
    found.request.Pack(coverage_pb2.StartCoverageRequest(coverage=wish))
    return found


def test_an_operation_tells_how_long_its_recordings_are_kept() -> None:
    found = operation()
    wish = coverage_pb2.CoverageRequest(retention_s=7 * 24 * 3600)
    found.request.Pack(coverage_pb2.StartCoverageRequest(coverage=wish))
    assert "what it records is kept for 7 d after its end" in list(operation_lines(found))
    found.done = True
    found.update_time.FromJsonString("2026-11-15T12:00:00Z")
    assert "what it recorded is kept until 2026-11-22 12:00:00.000 UTC" in list(operation_lines(found))
    assert listed_json(found)["retention_s"] == 604_800
    assert not [line for line in operation_lines(operation()) if "kept" in line]


def test_operations_are_told_with_their_targets_and_how_far_they_are() -> None:
    running = operation(progress=operation_pb2.Progress(stage="RECORDING", completed=20, total=100, unit="ms"))
    text = shown([operation_table([running])])
    assert "pod shop/cart-0 on n1" in text
    assert "recording 20 ms of 100 ms" in text
    told = listed_json(running)
    assert (told["state"], told["purpose"], told["done"]) == ("RUNNING", "anomaly", False)
    cancelled = operation_pb2.Error(message="it was cancelled", reason="OPERATION_CANCELLED", help="look at it")
    assert listed_json(operation(done=True, error=cancelled))["state"] == "CANCELLED"
    lines = list(operation_lines(operation(done=True, error=operation_pb2.Error(message="no room", reason="FULL"))))
    assert lines[-2:] == ["failed", "no room"]
