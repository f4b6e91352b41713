"""What Alertmanager is answered, over HTTP, by what coverage says, over gRPC."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from aiohttp.test_utils import TestClient, TestServer
from permille.alertmanager.alerts import Recording
from permille.alertmanager.webhook import Webhook
from permille.api.coverage.v1 import coverage_pb2, coverage_pb2_grpc
from permille.api.operation.v1 import operation_pb2
from permille.client import AsyncClient

Operation = operation_pb2.Operation
PASSES = operation_pb2.Error(code=14, message="the controller of n1 is away", reason="UNREACHABLE")
IN_THE_WAY = operation_pb2.Error(code=9, message="process 7 is already being traced", reason="ALREADY_TRACED")
STOPPED = operation_pb2.Error(code=9, message="it does not answer", reason="TARGET_STOPPED", help="start it again")
STAYS = operation_pb2.Error(code=5, message="it ended", reason="TARGET_ENDED", help="start it again")
ALERT = {
    "status": "firing",
    "labels": {"process_name": "redis-server"},
    "fingerprint": "a1",
    "startsAt": "2026-03-01T10:00:00Z",
}


async def posted(client: AsyncClient) -> tuple[int, dict[str, Any]]:
    """The status, and what became of the alert."""
    async with TestClient(TestServer(Webhook(client, Recording()).application())) as http:
        answer = await http.post("/alerts", json={"version": "4", "alerts": [ALERT]})
        return answer.status, (await answer.json())["alerts"][0]


async def test_a_coverage_that_is_silent_is_asked_again_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        async with AsyncClient(address, timeout_s=0.5, patience_s=0.0) as client:
            status, outcome = await posted(client)
    assert (status, outcome["outcome"]) == (503, "failed")
    assert "DEADLINE_EXCEEDED" in outcome["message"]


class Coverage(coverage_pb2_grpc.CoverageServiceServicer):
    """Knows its operations by request_id, as the real one does; tests end them."""

    def __init__(self) -> None:
        self.operations: dict[str, Operation] = {}

    async def StartCoverage(  # noqa: N802
        self, request: coverage_pb2.StartCoverageRequest, context: Any
    ) -> coverage_pb2.StartCoverageResponse:
        name = f"operations/{len(self.operations) + 1}"
        operation = self.operations.setdefault(request.request_id, Operation(name=name))
        return coverage_pb2.StartCoverageResponse(operation=operation)

    def end(self, request_id: str, error: operation_pb2.Error | None = None) -> None:
        operation = self.operations[request_id]
        operation.done = True
        if error is not None:
            operation.error.CopyFrom(error)


@pytest.fixture
def coverage() -> Coverage:
    return Coverage()  # type: ignore[abstract]


@pytest.fixture
async def client(coverage: Coverage) -> AsyncIterator[AsyncClient]:
    """Of a coverage that is served."""
    server = grpc.aio.server()
    coverage_pb2_grpc.add_CoverageServiceServicer_to_server(coverage, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        yield client
    await server.stop(None)


@pytest.mark.parametrize("passes", [PASSES, IN_THE_WAY], ids=lambda error: error.reason)
async def test_an_alert_whose_recording_failed_for_now_is_recorded_when_it_comes_again(
    coverage: Coverage, client: AsyncClient, passes: operation_pb2.Error
) -> None:
    status, outcome = await posted(client)
    assert (status, outcome["outcome"], outcome["operation"]) == (200, "accepted", "operations/1")
    (first,) = coverage.operations
    coverage.end(first, passes)
    status, outcome = await posted(client)
    assert (status, outcome["outcome"], outcome["operation"]) == (200, "accepted", "operations/2")
    # While it goes on, and when it is recorded, there is no third one.
    assert (await posted(client))[1]["operation"] == "operations/2"
    coverage.end(f"{first}-2")
    assert (await posted(client))[1] == outcome
    assert list(coverage.operations) == [first, f"{first}-2"]


@pytest.mark.parametrize("stays", [STAYS, STOPPED], ids=lambda error: error.reason)
async def test_an_alert_whose_recording_failed_for_good_is_told_why(
    coverage: Coverage, client: AsyncClient, stays: operation_pb2.Error
) -> None:
    await posted(client)
    (first,) = coverage.operations
    coverage.end(first, stays)
    status, outcome = await posted(client)
    assert (status, outcome["outcome"], outcome["operation"]) == (400, "failed", "operations/1")
    assert outcome["message"] == f"operations/1 failed, {stays.reason}: {stays.message} ({stays.help})"
    assert list(coverage.operations) == [first]


async def test_an_alert_is_not_recorded_for_ever(coverage: Coverage, client: AsyncClient) -> None:
    for _ in range(9):
        status, outcome = await posted(client)
        coverage.end(list(coverage.operations)[-1], PASSES)
    assert len(coverage.operations) == 5
    assert (status, outcome["outcome"], outcome["operation"]) == (400, "failed", "operations/5")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json; charset=klingon", b"{}"),
        ("application/json", b"[" * 100_000),
        ("application/json", b"9" * 5_000),
        ("application/json", b"\xff"),
        ("application/json", b'{"version": "4", "alerts": [{"labels": {"process_name": "\\ud800"}}]}'),
        (
            "application/json",
            b'{"version": "4", "alerts": [{"status": "firing", "fingerprint": "a1", "startsAt": "2026-03-01T10:00:00Z",'
            b' "labels": {"process_name": "\\ud800"}}]}',
        ),
    ],
)
async def test_what_nobody_can_mean_is_refused_and_not_an_error_of_the_server(
    client: AsyncClient, content_type: str, body: bytes
) -> None:
    async with TestClient(TestServer(Webhook(client, Recording()).application())) as http:
        answer = await http.post("/alerts", data=body, headers={"Content-Type": content_type})
        assert answer.status in (200, 400)
        assert answer.content_type == "application/json"


async def test_a_token_of_other_letters_is_not_the_token(client: AsyncClient) -> None:
    async with TestClient(TestServer(Webhook(client, Recording(), token="a").application())) as http:
        answer = await http.post("/alerts", json={}, headers={"Authorization": "Bearer ä"})
        assert answer.status == 401
