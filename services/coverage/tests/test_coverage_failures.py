"""What is cancelled, fails or cannot be: it is told why, and what was achieved is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from permille.api.controller.v1 import controller_pb2
from permille.mesh.config import MeshConfig
from permille.mesh.errors import (
    Cancelled,
    Code,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermilleError,
    ResourceExhausted,
    Unavailable,
)
from permille.mesh.operations import operation_error

from .coverage_process import Coverage, result_of
from .served_controller import Controller, Session, controller_serving
from .served_decoder import Decoder

NOT_READY = "was not started ready to be recorded"


async def test_a_cancel_while_recording_stops_the_session_and_keeps_what_it_has(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    await coverage.cancel(operation.name)
    error = operation_error(await coverage.wait(operation.name))
    (session,) = controller.sessions.values()
    assert isinstance(error, Cancelled)
    assert error.metadata == {"sessions": session.name}
    assert controller.stops == [session.name]
    assert session.state == Session.STATE_STORED
    assert decoder.decoded == []


async def test_a_cancel_while_decoding_names_what_is_kept(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.go_on.clear()
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "DECODING")
    await coverage.cancel(operation.name)
    error = operation_error(await coverage.wait(operation.name))
    assert isinstance(error, Cancelled)
    assert error.metadata["sessions"] == next(iter(controller.sessions))


async def test_a_session_that_fails_fails_the_operation_with_its_own_words(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    controller.fail_with = ("STORE_FULL", "the store is full", "delete sessions")
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,))).name))
    assert error is not None
    assert (error.reason, error.help) == ("STORE_FULL", "delete sessions")
    assert "the store is full" in error.message


async def test_a_decode_that_fails_fails_the_operation_with_its_own_words(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    decoder.fail_with = ResourceExhausted("no room for tables", reason="STORE_FULL", help="delete sessions")
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,))).name))
    assert isinstance(error, ResourceExhausted)
    assert error.metadata["session"] == next(iter(controller.sessions))


async def test_a_node_that_fails_is_told_and_the_others_sessions_are_the_result(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    other = Controller("n2")  # type: ignore[abstract]
    other.go_on.set()
    other.fail_with = ("DISK_FULL", "the disk of n2 is full", "free some")
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    result = result_of(operation)
    assert list(result.sessions) == list(controller.sessions)
    assert decoder.decoded == list(controller.sessions)
    (failure,) = result.failures
    assert (failure.node, failure.session) == ("nodes/n2", next(iter(other.sessions)))
    assert (failure.reason, failure.help) == ("DISK_FULL", "free some")
    assert "the disk of n2 is full" in failure.message


@pytest.mark.slow
async def test_a_node_that_is_gone_before_it_begins_is_told_and_stops_nobody(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    other = Controller("n2")  # type: ignore[abstract]

    async def gone(request: Any, context: Any) -> controller_pb2.StartSessionResponse:
        raise Unavailable("n2 is going down", reason="DRAINING")

    other.StartSession = gone  # type: ignore[method-assign]
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    result = result_of(operation)
    assert list(result.sessions) == list(controller.sessions)
    assert [(failure.node, failure.session) for failure in result.failures] == [("nodes/n2", "")]
    assert controller.stops == []


async def test_when_one_node_refuses_to_begin_the_others_are_stopped(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    other = Controller("n2")  # type: ignore[abstract]

    async def refuses(request: Any, context: Any) -> controller_pb2.StartSessionResponse:
        raise FailedPrecondition("n2 has no room", reason="SHARED_MEMORY_FULL", help="enlarge /dev/shm")

    other.StartSession = refuses  # type: ignore[method-assign]
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    error = operation_error(operation)
    assert error is not None
    assert error.reason == "SHARED_MEMORY_FULL"
    assert controller.stops == list(controller.sessions)


def test_the_guide_has_a_way_out_where_a_process_is_not_ready() -> None:
    guide = (Path(__file__).parents[3] / "docs/user-guide.md").read_text()
    assert f'| "{NOT_READY}" | start the program with `permille run' in guide


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ({"pids": (5,)}, NotFound("no process with pid 5", reason="", help="permille run")),
        ({"pids": (99,)}, FailedPrecondition(NOT_READY, reason="", help="permille run -- CMD")),
        ({"name": "redis"}, NotFound("no recordable process is named 'redis'", reason="", help="redis-server")),
        ({"name": "nginx"}, FailedPrecondition(NOT_READY, reason="", help="permille run -- CMD")),
        (
            {"pids": (13,), "period_ms": 60_001},
            InvalidArgument("60001 ms is outside 1 ms to 60000 ms", reason="", help="choose 1 to"),
        ),
        ({}, InvalidArgument("names no process", reason="", help="--pid or --name")),
        ({"pids": (13,), "node": "nodes/n9"}, NotFound("no controller of node n9", reason="", help="n1")),
        ({"pids": (13,), "node": "n1"}, InvalidArgument("does not name a node", reason="", help="nodes/<name>")),
    ],
)
async def test_a_wish_that_cannot_be_fulfilled_says_why_and_what_to_do(
    coverage: Coverage, controller: Controller, target: dict[str, Any], error: PermilleError
) -> None:
    for call in (coverage.plan, coverage.begin):
        with pytest.raises(type(error), match=error.message) as caught:
            await call(**target)
        assert error.help in caught.value.help


async def test_a_process_that_ended_meanwhile_says_so(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.ends_after_plan = 13
    error = operation_error(await coverage.wait((await coverage.begin(pids=(13,))).name))
    assert error is not None
    assert (error.code, error.reason) == (Code.NOT_FOUND, "TARGET_ENDED")


async def test_of_a_name_the_processes_that_have_ended_meanwhile_are_left_out(
    coverage: Coverage, controller: Controller, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    controller.ends_after_plan = 11
    other = Controller("n2")  # type: ignore[abstract]
    other.processes = {21: "redis-server"}
    other.ends_after_plan = 21
    async with controller_serving(mesh_config, other):
        operation = await coverage.wait((await coverage.begin(name="redis-server")).name)
    result = result_of(operation)
    assert list(result.sessions) == list(controller.sessions)
    assert [list(session.pids) for session in controller.sessions.values()] == [[12]]
    assert [(failure.node, failure.reason) for failure in result.failures] == [("nodes/n2", "TARGET_ENDED")]
    assert controller.stops == []


async def test_without_any_controller_the_way_out_is_named(coverage: Coverage) -> None:
    with pytest.raises(Unavailable, match="no controller is running") as caught:
        await coverage.plan(pids=(13,))
    assert "permille up" in caught.value.help
