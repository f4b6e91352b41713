"""A service as a process of its own: what it sends, what it leaves behind, what it says when it cannot start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from permille.mesh.discovery import wait_for
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.etcd import Etcd

SERVICE = """
from permille.mesh.config import MeshConfig
from permille.mesh.server import run

async def setup(context):
    pass

raise SystemExit(run("allocator", MeshConfig, setup, instance=lambda config: "a1"))
"""
WITH_A_THREAD_THAT_WAITS = """
import asyncio, time
from permille.mesh.config import MeshConfig
from permille.mesh.server import run

async def setup(context):
    context.spawn(asyncio.to_thread(time.sleep, 3600))

raise SystemExit(run("allocator", MeshConfig, setup))
"""
STARTER = """
import asyncio, pathlib, sys
from permille.mesh.embedded_etcd import EmbeddedEtcd

async def main():
    etcd = EmbeddedEtcd(pathlib.Path(sys.argv[1]), durable=False)
    await etcd.start()
    print(etcd.process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def spawn(code: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that are sent to it."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str]] = []

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        for resource in request.resource_spans:
            names = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(names["service.name"], span.name) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_spans_go_to_the_configured_collector_and_the_last_ones_before_the_end(
    etcd_server: EmbeddedEtcd, etcd: Etcd
) -> None:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    process = await spawn(SERVICE, "--etcd", etcd_server.endpoint, "--otlp-endpoint", f"http://127.0.0.1:{port}")
    endpoint = await wait_for(etcd, "allocator", timeout_s=60)
    async with grpc.aio.insecure_channel(endpoint.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # type: ignore[no-untyped-call]
        await stub.Check(health_pb2.HealthCheckRequest())
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert ("permille-allocator", "/grpc.health.v1.Health/Check") in collector.spans
    await server.stop(0)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (["--listn", "x"], 2, "did you mean --listen?"),
        (["--etcd", "127.0.0.1:1", "--listen", "0.0.0.0:0"], 1, "permille certs"),
        (["--state-dir", "/nonexistent/permille"], 1, "permille up"),
        (
            ["--etcd", "127.0.0.1:1", "--tls-ca", "/a", "--tls-cert", "/b", "--tls-key", "/c"],
            1,
            "cannot read the TLS file",
        ),
    ],
)
async def test_a_start_that_cannot_be_says_why_and_ends(arguments: list[str], exit_code: int, says: str) -> None:
    process = await spawn(SERVICE, *arguments)
    _, stderr = await process.communicate()
    assert process.returncode == exit_code
    assert says in stderr.decode()
    assert "Traceback" not in stderr.decode()


async def test_a_thread_that_waits_for_ever_does_not_keep_a_service_that_has_ended(
    etcd_server: EmbeddedEtcd, etcd: Etcd
) -> None:
    process = await spawn(WITH_A_THREAD_THAT_WAITS, "--etcd", etcd_server.endpoint)
    await wait_for(etcd, "allocator", timeout_s=60)
    process.send_signal(signal.SIGTERM)
    _, told = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0
    assert "ended without its threads" in told.decode()


async def test_the_private_etcd_does_not_outlive_a_killed_starter(tmp_path: Path) -> None:
    starter = await spawn(STARTER, str(tmp_path / "etcd"))
    assert starter.stdout is not None
    pid = int(await starter.stdout.readline())
    os.kill(pid, 0)
    starter.kill()
    await starter.wait()
    while _runs(pid):
        await asyncio.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
