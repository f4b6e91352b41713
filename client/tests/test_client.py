"""Both clients against the coverage service itself, over TLS, as other systems meet it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from permille.client import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    wish,
)
from permille.mesh import certs, discovery
from permille.mesh.auth import Role
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd

# Nobody listens there.
DEAD = "127.0.0.1:1"
CALLERS = '{"limited": {"calls_per_minute": 1}, "patient": {"calls_per_minute": 30}}'


@dataclass
class Server:
    """A coverage service without any controller, and the certificates of its callers."""

    address: str
    folder: Path

    def options(self, name: str, **more: Any) -> dict[str, Any]:
        files = {"ca": "ca.crt", "cert": f"{name}.crt", "key": f"{name}.key"}
        return {key: self.folder / file for key, file in files.items()} | {"patience_s": 0.0} | more


@pytest.fixture
async def server(mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path) -> AsyncIterator[Server]:
    folder = tmp_path / "certs"
    certs.create_authority(folder)
    certs.issue_service(folder, ["coverage"], node="n1")
    for name, role in {
        "pager": Role.EXTERNAL,
        "limited": Role.EXTERNAL,
        "patient": Role.EXTERNAL,
        "eve": Role.VIEWER,
    }.items():
        certs.issue_user(folder, name, roles=[role])
    flags = ["--etcd", ",".join(mesh_config.etcd), "--node", "n1", "--metrics", "off", "--lease-ttl-s", "2"]
    flags += ["--state-dir", str(mesh_config.state_dir), "--coverage-callers", CALLERS]
    for key, file in {"ca": "ca.crt", "cert": "n1.crt", "key": "n1.key"}.items():
        flags += [f"--tls-{key}", str(folder / file)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "permille.coverage.main", *flags)
    endpoint = await discovery.wait_for(etcd, "coverage", timeout_s=120)
    yield Server(endpoint.address, folder)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


async def test_errors_are_typed_and_carry_reason_help_metadata_and_when_to_come_again(server: Server) -> None:
    def work() -> None:
        with Client(server.address, **server.options("pager")) as client:
            with pytest.raises(Unavailable) as absent:
                client.start(wish(process_name="redis-server"))
            assert (absent.value.reason, absent.value.retry_after_s) == ("SERVICE_ABSENT", 2.0)
            assert "permille up" in absent.value.help
            with pytest.raises(InvalidArgument) as empty:
                client.plan(wish())
            assert empty.value.reason == "TARGET_EMPTY"
            with pytest.raises(NotFound) as unknown:
                client.wait("operations/0123456789ab-01234567")
            assert unknown.value.metadata == {"operation": "operations/0123456789ab-01234567"}
            assert list(client.operations()) == []
        with Client(server.address, **server.options("eve")) as viewer, pytest.raises(PermissionDenied) as denied:
            viewer.start(wish(process_name="redis-server"))
        assert (denied.value.reason, denied.value.metadata["caller"]) == ("ROLE_MISSING", "eve")

    await in_thread(work)


async def test_a_rate_limit_is_told_or_waited_for(server: Server) -> None:
    async with AsyncClient(server.address, **server.options("limited")) as client:
        with pytest.raises(ResourceExhausted) as failure:
            while True:
                assert [one async for one in client.operations()] == []
        assert failure.value.reason == "CALL_RATE"
        assert 0 < (failure.value.retry_after_s or 0) <= 60
    async with AsyncClient(server.address, **server.options("patient", patience_s=300.0)) as client:
        # One more than a quiet minute has: the last one waits two seconds for its turn.
        for _ in range(31):
            assert [one async for one in client.operations()] == []


async def test_another_replica_is_asked_when_one_does_not_answer(server: Server) -> None:
    both = f"{DEAD}, {server.address}"

    def work() -> None:
        with Client(both, **server.options("pager", patience_s=300.0)) as client:
            assert list(client.operations()) == []

    await in_thread(work)
    async with AsyncClient(both, **server.options("pager", patience_s=300.0)) as client:
        assert [one async for one in client.operations()] == []
    with Client(DEAD, **server.options("pager")) as alone, pytest.raises(Unavailable) as failure:
        alone.get("operations/0123456789ab-01234567")
    assert failure.value.reason == "UNREACHABLE"


async def test_another_replica_is_asked_when_one_is_silent(server: Server) -> None:
    with listening_to_nobody() as silent:
        both = f"{silent}, {server.address}"
        options = server.options("pager", timeout_s=2.0, patience_s=300.0)

        def work() -> None:
            with Client(both, **options) as client:
                assert list(client.operations()) == []

        await in_thread(work)
        async with AsyncClient(both, **options) as client:
            assert [one async for one in client.operations()] == []
        with (
            Client(silent, **server.options("pager", timeout_s=0.5)) as alone,
            pytest.raises(DeadlineExceeded) as failure,
        ):
            alone.get("operations/0123456789ab-01234567")
        assert failure.value.reason == "DEADLINE_EXCEEDED"


async def test_calls_beside_each_other_pass_over_a_replica_once(server: Server) -> None:
    async with AsyncClient(f"{DEAD}, {server.address}", **server.options("pager")) as client:
        calls = (client.get("operations/0123456789ab-01234567") for _ in range(2))
        assert {type(one) for one in await asyncio.gather(*calls, return_exceptions=True)} == {Unavailable}
        assert [one async for one in client.operations()] == []


@contextmanager
def listening_to_nobody() -> Iterator[str]:
    """The address of a process that is stopped: connections are made, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


def test_plain_text_stays_on_this_machine_and_addresses_are_checked() -> None:
    with pytest.raises(FailedPrecondition, match="plain text"):
        Client("10.0.0.1:7600")
    for wrong in ("", "localhost", "localhost:http", "127.0.0.1:999999", "::1:70"):
        with pytest.raises(InvalidArgument, match="HOST:PORT"):
            Client(wrong)
    with pytest.raises(InvalidArgument, match="belong together"):
        Client("127.0.0.1:7600", ca="ca.crt")
