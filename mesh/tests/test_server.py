"""The bootstrap with real gRPC and a real etcd: errors, health, reflection, metrics, drain, TLS, roles."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from permille.api.allocator.v1 import allocator_pb2, allocator_pb2_grpc
from permille.mesh import certs
from permille.mesh.auth import OPERATE, VIEW, Access, Role
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import resolve, wait_for
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import (
    Code,
    DeadlineExceeded,
    FailedPrecondition,
    PermilleError,
    ResourceExhausted,
    Unavailable,
)
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error
from permille.mesh.server import ServerContext, serve

Request = allocator_pb2.PlanBuffersRequest
Response = allocator_pb2.PlanBuffersResponse
# Not typed by their authors.
health_stub: Callable[[grpc.aio.Channel], Any] = health_pb2_grpc.HealthStub
reflection_stub: Callable[[grpc.aio.Channel], Any] = reflection_pb2_grpc.ServerReflectionStub

Plan = Callable[[Request, Any], Awaitable[Response]]


class Allocator(allocator_pb2_grpc.AllocatorServiceServicer):
    """Answers with what the test says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def PlanBuffers(  # noqa: N802
        self, request: Request, context: Any
    ) -> Response:
        return await self._plan(request, context)

    async def LearnRate(self, request: Any, context: Any) -> allocator_pb2.LearnRateResponse:  # noqa: N802
        return allocator_pb2.LearnRateResponse()


@asynccontextmanager
async def allocator(
    config: MeshConfig, plan: Plan, *, access: Access = OPERATE, instance: str = "a1"
) -> AsyncIterator[ServerContext]:
    """Serves an allocator by `permille.mesh.server.serve` and drains it at the end."""
    # Nobody dies here, and on a busy machine two seconds may pass without a sign of life.
    config = config.model_copy(update={"lease_ttl_s": 60})
    ready: asyncio.Future[ServerContext] = asyncio.get_running_loop().create_future()

    async def setup(context: ServerContext) -> None:
        context.add(
            allocator_pb2_grpc.add_AllocatorServiceServicer_to_server,
            Allocator(plan),
            allocator_pb2.DESCRIPTOR.services_by_name["AllocatorService"],
            {"PlanBuffers": access, "LearnRate": access},
        )
        ready.set_result(context)

    task = asyncio.create_task(serve("allocator", config, setup, instance=instance))
    waited: set[asyncio.Future[Any]] = {task, ready}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield ready.result()
    finally:
        ready.result().end(0)
        assert await task == 0


async def echo(request: Request, _: Any) -> Response:
    return Response(total_bytes=request.budget_bytes)


async def call(channels: Channels, request: Request | None = None, **options: Any) -> Response:
    """One PlanBuffers through discovery; failures as `PermilleError`."""
    stub = allocator_pb2_grpc.AllocatorServiceStub(await channels.to("allocator"))
    try:
        return await stub.PlanBuffers(request or Request(), **options)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


@pytest.fixture
async def channels(mesh_config: MeshConfig, etcd: Etcd) -> Any:
    opened = Channels(mesh_config, etcd)
    yield opened
    await opened.close()


async def test_a_call_finds_its_server_by_discovery(mesh_config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
    async with allocator(mesh_config, echo):
        await wait_for(etcd, "allocator", timeout_s=60)
        assert (await call(channels, Request(budget_bytes=7))).total_bytes == 7
    assert await resolve(etcd, "allocator") == []


async def test_thousands_of_calls_at_once_are_all_answered(
    mesh_config: MeshConfig, etcd: Etcd, channels: Channels
) -> None:
    async with allocator(mesh_config, echo):
        await wait_for(etcd, "allocator", timeout_s=60)
        stub = allocator_pb2_grpc.AllocatorServiceStub(await channels.to("allocator"))
        calls = [stub.PlanBuffers(Request(budget_bytes=number)) for number in range(3000)]
        assert [reply.total_bytes for reply in await asyncio.gather(*calls)] == list(range(3000))


async def test_an_error_arrives_whole(mesh_config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
    async def full(_: Request, __: Any) -> Response:
        raise ResourceExhausted(
            "the store has 3 bytes left",
            reason="STORE_FULL",
            help="delete sessions",
            metadata={"left": "3"},
            retry_after_s=2.5,
        )

    async with allocator(mesh_config, full):
        await wait_for(etcd, "allocator", timeout_s=60)
        with pytest.raises(ResourceExhausted) as caught:
            await call(channels)
    error = caught.value
    assert (error.message, error.reason, error.help) == ("the store has 3 bytes left", "STORE_FULL", "delete sessions")
    assert (error.metadata, error.retry_after_s) == ({"left": "3"}, 2.5)


async def test_a_defect_is_logged_with_an_id_and_tells_the_client_the_id_alone(
    mesh_config: MeshConfig, etcd: Etcd, channels: Channels, capfd: pytest.CaptureFixture[str]
) -> None:
    async def broken(_: Request, __: Any) -> Response:
        raise ZeroDivisionError("secret detail")

    async with allocator(mesh_config, broken):
        await wait_for(etcd, "allocator", timeout_s=60)
        with pytest.raises(PermilleError) as caught:
            await call(channels)
    assert caught.value.code == Code.INTERNAL
    assert "secret" not in str(caught.value.message) + caught.value.help
    error_id = caught.value.metadata["error_id"]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if error_id in line]
    assert lines
    assert "secret detail" in json.dumps(lines[0])


async def calls_until_refused(
    channels: Channels, answered: asyncio.Barrier, refused: list[PermilleError], stop: asyncio.Event
) -> None:
    stub = allocator_pb2_grpc.AllocatorServiceStub(await channels.to("allocator"))
    await stub.PlanBuffers(Request(), timeout=60)
    await answered.wait()
    while not stop.is_set():
        try:
            await stub.PlanBuffers(Request(), timeout=60)
        except grpc.RpcError as error:
            refused.append(from_rpc_error(error))
            return


@pytest.mark.parametrize("others", [0, 1])
async def test_calls_that_arrive_while_a_server_drains_go_to_another_one(
    mesh_config: MeshConfig, etcd: Etcd, channels: Channels, others: int
) -> None:
    refused: list[PermilleError] = []
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        for number in range(others):
            await stack.enter_async_context(allocator(mesh_config, echo, instance=f"b{number}"))
        async with allocator(mesh_config, echo, instance="a1"):
            await wait_for(etcd, "allocator", instance="a1", timeout_s=60)
            # Each knows a server before the one that drains is gone.
            answered = asyncio.Barrier(50 + 1)
            calls = [asyncio.create_task(calls_until_refused(channels, answered, refused, stop)) for _ in range(50)]
            await answered.wait()
        await asyncio.sleep(0.2)
        stop.set()
        await asyncio.gather(*calls)
    if others:
        assert not refused
    else:
        assert {error.code for error in refused} == {Code.UNAVAILABLE}


async def test_health_and_reflection_name_the_services(mesh_config: MeshConfig, etcd: Etcd) -> None:
    async with allocator(mesh_config, echo):
        endpoint = await wait_for(etcd, "allocator", timeout_s=60)
        async with grpc.aio.insecure_channel(endpoint.address) as channel:
            for service in ("", "permille.allocator.v1.AllocatorService"):
                reply = await health_stub(channel).Check(health_pb2.HealthCheckRequest(service=service))
                assert reply.status == health_pb2.HealthCheckResponse.SERVING
            stream = reflection_stub(channel).ServerReflectionInfo(
                iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            )
            names = {s.name for reply in [r async for r in stream] for s in reply.list_services_response.service}
    assert "permille.allocator.v1.AllocatorService" in names


async def test_metrics_count_calls_by_method_and_code(mesh_config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
    async def sometimes(request: Request, _: Any) -> Response:
        if request.budget_bytes == 13:
            raise FailedPrecondition("thirteen", reason="THIRTEEN")
        return Response()

    async with allocator(mesh_config.model_copy(update={"metrics": "127.0.0.1:0"}), sometimes):
        endpoint = await wait_for(etcd, "allocator", timeout_s=60)

        def scrape(code: str) -> float:
            with urllib.request.urlopen(f"http://{endpoint.metadata['metrics']}/metrics") as page:
                text = page.read().decode()
            method = "/permille.allocator.v1.AllocatorService/PlanBuffers"
            pattern = rf'permille_calls_total{{code="{code}",method="{method}"}} (\S+)'
            found = re.search(pattern, text)
            return float(found.group(1)) if found else 0.0

        before = await asyncio.to_thread(scrape, "OK"), await asyncio.to_thread(scrape, "FAILED_PRECONDITION")
        for budget in (1, 13, 2):
            try:
                await call(channels, Request(budget_bytes=budget))
            except FailedPrecondition:
                assert budget == 13
        after = await asyncio.to_thread(scrape, "OK"), await asyncio.to_thread(scrape, "FAILED_PRECONDITION")
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)


async def test_a_drain_lets_running_calls_finish(mesh_config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request, _: Any) -> Response:
        begun.set()
        await go_on.wait()
        return Response(total_bytes=request.budget_bytes)

    async with allocator(mesh_config, slow) as context:
        await wait_for(etcd, "allocator", timeout_s=60)
        running = asyncio.create_task(call(channels, Request(budget_bytes=5)))
        await begun.wait()
        context.end(0)
        await context.draining.wait()
        go_on.set()
        assert (await running).total_bytes == 5


@asynccontextmanager
async def counting(config: MeshConfig) -> AsyncIterator[None]:
    """Serves one method that streams 0, 1 and then fails, and that no table of roles names."""

    async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"0"
        yield b"1"
        if request == b"for ever":
            await asyncio.Event().wait()
        raise ResourceExhausted("no more numbers", reason="NUMBERS", help="buy some")

    async def setup(context: ServerContext) -> None:
        methods: dict[str, Any] = {"Count": grpc.unary_stream_rpc_method_handler(count)}
        context.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Numbers", methods),))
        contexts.append(context)

    contexts: list[ServerContext] = []
    task = asyncio.create_task(serve("allocator", config, setup))
    try:
        yield
    finally:
        contexts[0].end(0)
        assert await task == 0


async def test_who_waits_in_vain_is_told_where_to_look(mesh_config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
    async def silent(request: Request, context: Any) -> Response:
        await asyncio.sleep(60)
        return await echo(request, context)

    async with allocator(mesh_config, silent):
        await wait_for(etcd, "allocator", timeout_s=60)
        with pytest.raises(PermilleError) as caught:
            await call(channels, timeout=1)
    assert (caught.value.code, caught.value.message) == (Code.DEADLINE_EXCEEDED, "there was no answer in time")
    assert "permille doctor" in caught.value.help


async def test_a_stream_ends_with_its_error_after_what_it_gave(
    mesh_config: MeshConfig, etcd: Etcd, channels: Channels
) -> None:
    async with counting(mesh_config):
        await wait_for(etcd, "allocator", timeout_s=60)
        channel = await channels.to("allocator")
        stream: Any = channel.unary_stream("/test.Numbers/Count")
        seen: list[bytes] = []
        with pytest.raises(grpc.RpcError) as caught:
            async for number in stream(b""):
                seen += [number]
        error = from_rpc_error(caught.value)
    assert seen == [b"0", b"1"]
    assert (error.reason, error.help) == ("NUMBERS", "buy some")


async def test_a_stream_that_its_client_leaves_makes_no_noise(
    mesh_config: MeshConfig, etcd: Etcd, channels: Channels, capfd: pytest.CaptureFixture[str]
) -> None:
    async with counting(mesh_config):
        await wait_for(etcd, "allocator", timeout_s=60)
        stream: Any = (await channels.to("allocator")).unary_stream("/test.Numbers/Count")
        call = stream(b"for ever")
        async for number in call:
            if number == b"1":
                break
        call.cancel()
        await asyncio.sleep(0.5)
    noise = [line for line in capfd.readouterr().err.splitlines() if '"error"' in line or "Traceback" in line]
    assert noise == []


async def test_a_method_that_no_table_names_is_for_agents_alone(
    mesh_config: MeshConfig, etcd: Etcd, authority: Path
) -> None:
    async with counting(secured(mesh_config, authority, "n1")):
        await wait_for(etcd, "allocator", timeout_s=60)
        for name, allowed in (("operator-user", False), ("agent-user", True)):
            channels = Channels(secured(mesh_config, authority, name), etcd)
            stream: Any = (await channels.to("allocator")).unary_stream("/test.Numbers/Count")
            with pytest.raises(grpc.RpcError) as caught:
                async for _ in stream(b""):
                    pass
            assert from_rpc_error(caught.value).reason == ("NUMBERS" if allowed else "ROLE_MISSING")
            await channels.close()


async def test_sigterm_drains(mesh_config: MeshConfig, etcd: Etcd) -> None:
    async with allocator(mesh_config, echo) as context:
        await wait_for(etcd, "allocator", timeout_s=60)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.shield(context.ended) == 0


async def test_the_end_of_a_background_task_by_error_ends_the_process_with_1(mesh_config: MeshConfig) -> None:
    async def fails() -> None:
        raise RuntimeError("no")

    async def setup(context: Any) -> None:
        context.spawn(fails())

    assert await serve("allocator", mesh_config, setup) == 1


async def test_a_call_without_a_deadline_gets_one(mesh_config: MeshConfig, etcd: Etcd) -> None:
    seen: list[float] = []

    async def remember(_: Request, context: Any) -> Response:
        seen.append(context.time_remaining())
        return Response()

    config = mesh_config.model_copy(update={"call_timeout_s": 20.0})
    channels = Channels(config, etcd)
    async with allocator(config, remember):
        await wait_for(etcd, "allocator", timeout_s=60)
        await call(channels)
        await call(channels, timeout=50)
    assert 10 < seen[0] < 22
    assert 40 < seen[1] < 55
    await channels.close()


async def test_a_deadline_that_passes_is_an_error_of_its_own(
    mesh_config: MeshConfig, etcd: Etcd, channels: Channels
) -> None:
    async def never(_: Request, __: Any) -> Response:
        await asyncio.sleep(60)
        return Response()

    async with allocator(mesh_config, never):
        await wait_for(etcd, "allocator", timeout_s=60)
        with pytest.raises(DeadlineExceeded):
            await call(channels, timeout=0.2)


async def test_unavailable_is_tried_again(mesh_config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
    attempts: list[int] = []

    async def third(_: Request, __: Any) -> Response:
        attempts.append(1)
        if len(attempts) < 3:
            raise Unavailable("not yet", reason="WARMING_UP")
        return Response(total_bytes=9)

    async with allocator(mesh_config, third):
        await wait_for(etcd, "allocator", timeout_s=60)
        assert (await call(channels)).total_bytes == 9
    assert len(attempts) == 3


async def test_a_trace_goes_through_where_traces_are_wanted(mesh_config: MeshConfig, etcd: Etcd) -> None:
    trace.set_tracer_provider(TracerProvider())
    channels = Channels(mesh_config.model_copy(update={"otlp_endpoint": "http://127.0.0.1:1"}), etcd)
    seen: list[str] = []

    async def remember(_: Request, context: Any) -> Response:
        seen.extend(value for key, value in context.invocation_metadata() if key == "traceparent")
        return Response()

    async with allocator(mesh_config, remember):
        await wait_for(etcd, "allocator", timeout_s=60)
        await call(channels)
    await channels.close()
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]", seen[0])


async def test_while_etcd_is_away_the_replicas_known_last_are_called(
    mesh_config: MeshConfig, etcd: Etcd, etcd_server: EmbeddedEtcd, channels: Channels
) -> None:
    async with allocator(mesh_config, echo):
        await wait_for(etcd, "allocator", timeout_s=60)
        await call(channels)
        await etcd_server.stop()
        assert (await call(channels, Request(budget_bytes=3))).total_bytes == 3


async def test_nobody_there_says_what_to_start(channels: Channels) -> None:
    with pytest.raises(Unavailable, match="no allocator is running") as caught:
        await channels.to("allocator")
    assert "permille up" in caught.value.help


async def test_who_looks_for_a_service_that_registers_again_waits_for_it(mesh_config: MeshConfig, etcd: Etcd) -> None:
    channels = Channels(mesh_config, etcd, absent_s=60)
    called = asyncio.create_task(call(channels, Request(budget_bytes=3)))
    await asyncio.sleep(0.2)
    assert not called.done()
    async with allocator(mesh_config, echo):
        assert (await called).total_bytes == 3
    await channels.close()


async def test_who_waited_in_vain_is_told_that_nobody_is_there(mesh_config: MeshConfig, etcd: Etcd) -> None:
    channels = Channels(mesh_config, etcd, absent_s=0.1)
    with pytest.raises(Unavailable, match="no allocator on n7 is running"):
        await channels.to("allocator", "n7")


@pytest.mark.parametrize("setting", ["listen", "metrics"])
async def test_plain_text_off_loopback_is_refused(mesh_config: MeshConfig, setting: str) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        async with allocator(mesh_config.model_copy(update={setting: "0.0.0.0:0"}), echo):
            pass
    assert caught.value.reason == "TLS_REQUIRED"
    assert "permille certs" in caught.value.help


async def test_a_port_in_use_is_named(mesh_config: MeshConfig, etcd: Etcd) -> None:
    async with allocator(mesh_config, echo):
        endpoint = await wait_for(etcd, "allocator", timeout_s=60)

        async def nothing(_: Any) -> None:
            return

        with pytest.raises(FailedPrecondition, match=re.escape(endpoint.address)):
            await serve("allocator", mesh_config.model_copy(update={"listen": endpoint.address}), nothing)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    certs.create_authority(folder)
    certs.issue_service(folder, ["allocator"], node="n1")
    for role in Role:
        certs.issue_user(folder, f"{role.value}-user", roles=[role])
    return folder


def secured(config: MeshConfig, folder: Path, name: str) -> MeshConfig:
    files = {"tls_ca": folder / "ca.crt", "tls_cert": folder / f"{name}.crt", "tls_key": folder / f"{name}.key"}
    return config.model_copy(update=files)


@pytest.mark.parametrize(
    ("access", "allowed"),
    [
        (VIEW, {Role.VIEWER, Role.OPERATOR, Role.AGENT, Role.EXTERNAL}),
        (OPERATE, {Role.OPERATOR, Role.AGENT, Role.EXTERNAL}),
    ],
)
async def test_each_role_may_do_what_the_table_says(
    mesh_config: MeshConfig, etcd: Etcd, authority: Path, access: Access, allowed: set[Role]
) -> None:
    async with allocator(secured(mesh_config, authority, "n1"), echo, access=access):
        await wait_for(etcd, "allocator", timeout_s=60)
        for role in Role:
            channels = Channels(secured(mesh_config, authority, f"{role.value}-user"), etcd)
            if role in allowed:
                assert (await call(channels, Request(budget_bytes=1))).total_bytes == 1
            else:
                with pytest.raises(PermilleError, match=f"needs the role {access.needs}") as caught:
                    await call(channels)
                assert caught.value.code == Code.PERMISSION_DENIED
                assert caught.value.metadata["caller"] == f"{role.value}-user"
            await channels.close()


async def test_who_shows_no_certificate_or_one_of_another_authority_gets_no_connection(
    mesh_config: MeshConfig, etcd: Etcd, authority: Path, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger"
    certs.create_authority(stranger)
    certs.issue_user(stranger, "mallory", roles=[Role.OPERATOR])
    mixed = secured(mesh_config, stranger, "mallory").model_copy(update={"tls_ca": authority / "ca.crt"})
    async with allocator(secured(mesh_config, authority, "n1"), echo):
        await wait_for(etcd, "allocator", timeout_s=60)
        for config in (mesh_config, mixed):
            channels = Channels(config, etcd)
            with pytest.raises(PermilleError) as caught:
                await call(channels, timeout=5)
            assert caught.value.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
            await channels.close()


async def test_probes_without_a_certificate_are_told_the_health_and_nothing_else(
    mesh_config: MeshConfig, etcd: Etcd, authority: Path
) -> None:
    config = secured(mesh_config, authority, "n1").model_copy(update={"health": "127.0.0.1:0"})
    async with allocator(config, echo):
        endpoint = await wait_for(etcd, "allocator", timeout_s=60)
        async with grpc.aio.insecure_channel(endpoint.metadata["health"]) as channel:
            reply = await health_stub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await allocator_pb2_grpc.AllocatorServiceStub(channel).PlanBuffers(Request(), timeout=60)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_metrics_are_as_closed_as_the_calls(mesh_config: MeshConfig, etcd: Etcd, authority: Path) -> None:
    config = secured(mesh_config, authority, "n1").model_copy(update={"metrics": "127.0.0.1:0"})
    async with allocator(config, echo):
        endpoint = await wait_for(etcd, "allocator", timeout_s=60)
        url = f"https://{endpoint.metadata['metrics']}/metrics"

        def scrape(with_certificate: bool) -> str:
            trust = ssl.create_default_context(cafile=str(authority / "ca.crt"))
            if with_certificate:
                trust.load_cert_chain(authority / "viewer-user.crt", authority / "viewer-user.key")
            with urllib.request.urlopen(url, context=trust, timeout=60) as page:
                text: bytes = page.read()
            return text.decode()

        assert "permille_calls_total" in await asyncio.to_thread(scrape, True)
        with pytest.raises(OSError, match=r"certificate required|handshake|closed|reset|EOF"):
            await asyncio.to_thread(scrape, False)


async def test_a_user_certificate_cannot_pass_for_a_service(
    mesh_config: MeshConfig, etcd: Etcd, authority: Path
) -> None:
    async with allocator(secured(mesh_config, authority, "operator-user"), echo):
        await wait_for(etcd, "allocator", timeout_s=60)
        channels = Channels(secured(mesh_config, authority, "viewer-user"), etcd)
        with pytest.raises(PermilleError) as caught:
            await call(channels, timeout=5)
        assert caught.value.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
        await channels.close()
