"""What Alertmanager is answered, over HTTP, by what coverage says, over gRPC."""

from __future__ import annotations

import socket
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from permille.alertmanager.alerts import Recording
from permille.alertmanager.webhook import Webhook
from permille.client import AsyncClient

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
