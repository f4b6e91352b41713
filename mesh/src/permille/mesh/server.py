"""The bootstrap of every service: from a configuration to a drained end."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from permille.mesh import discovery, logs, telemetry, tracing
from permille.mesh.auth import VIEW, Access, AuthInterceptor
from permille.mesh.channels import MOST_MESSAGE_BYTES, Channels
from permille.mesh.config import MeshConfig, load
from permille.mesh.credentials import server_credentials
from permille.mesh.errors import FailedPrecondition, InvalidArgument, PermilleError
from permille.mesh.etcd import Etcd, connect
from permille.mesh.flags import parse
from permille.mesh.interceptor import ErrorInterceptor
from permille.mesh.lease import Lease
from permille.mesh.memory import give_back
from permille.mesh.operations import OperationStore
from permille.mesh.plaintext import require_loopback
from permille.mesh.reflection import REFLECTION, Reflection
from permille.mesh.threads_left import end_without_threads

if TYPE_CHECKING:
    from permille.mesh.store import ObjectStore

_log = structlog.get_logger(__name__)
_EVERYONE = {
    "/grpc.health.v1.Health/Check": VIEW,
    "/grpc.health.v1.Health/Watch": VIEW,
    f"/{REFLECTION}/ServerReflectionInfo": VIEW,
}

# Not typed by their authors.
_health: Any = health
_add_health: Callable[[Any, grpc.aio.Server], None] = health_pb2_grpc.add_HealthServicer_to_server
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    # Channels ping every 30 s also while a long wait is silent; the default takes that for abuse after 3 pings.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Beyond 1,000 calls that wait to be taken gRPC cancels new ones without a word; a large mesh starts all at once.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 30_000),
)

Setup = Callable[["ServerContext"], Awaitable[None]]


class ServerContext:
    """What a service's `setup` gets: the server to add itself to, and the parts of the mesh that it uses."""

    def __init__(self, service: str, instance: str, config: MeshConfig, etcd: Etcd) -> None:
        self.service = service
        self.instance = instance
        self.config = config
        self.etcd = etcd
        self.lease = Lease(etcd, config.lease_ttl_s)
        self.channels = Channels(config, etcd)
        self.draining = asyncio.Event()
        self.operations = OperationStore(etcd, service, lease=self.lease, draining=self.draining)
        self.auth = AuthInterceptor(secure=config.tls)
        self.auth.allow(_EVERYONE)
        self.server = grpc.aio.server(
            interceptors=[
                *tracing.server_interceptors(config),
                telemetry.MetricsInterceptor(),
                ErrorInterceptor(service),
                self.auth,
            ],
            options=_OPTIONS,
        )
        self.added: list[str] = []
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.callbacks: list[Callable[[], Awaitable[None]]] = []

    @cached_property
    def store(self) -> ObjectStore:
        """The configured object store."""
        from permille.mesh.store import open_store  # noqa: PLC0415 - half of the services store nothing

        return open_store(self.config.store_url)

    def add(
        self,
        add_to_server: Callable[[Any, Any], None],
        servicer: object,
        descriptor: ServiceDescriptor,
        access: Mapping[str, Access],
    ) -> None:
        """Adds a gRPC service. `access` says for each of its methods who may call it; forgetting one is an error."""
        methods = {method.name for method in descriptor.methods}
        if methods != set(access):
            raise ValueError(f"{descriptor.full_name}: access is declared for {sorted(access)}, not {sorted(methods)}")
        self.auth.allow({f"/{descriptor.full_name}/{method}": roles for method, roles in access.items()})
        add_to_server(servicer, self.server)
        self.added.append(descriptor.full_name)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs something beside the calls until the process drains. If it fails, the process ends with exit code 1."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def on_shutdown(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Something to await after the last call and before etcd is left; the last one added comes first."""
        self.callbacks.append(callback)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _log.error("a background task failed; the process ends", exc_info=error)
            self.end(1)

    def end(self, exit_code: int) -> None:
        """Begins the drain; a second time changes nothing."""
        if not self.ended.done():
            self.ended.set_result(exit_code)


async def serve(service: str, config: MeshConfig, setup: Setup, *, instance: str | None = None) -> int:
    """Serves until SIGTERM or SIGINT, then drains; the process's exit code.

    Raises `FailedPrecondition` for plain text off loopback, a port in use or unreadable TLS files, and `Unavailable`
    when no etcd is known. An etcd that is only away does not matter: registration waits for it.
    """
    name = instance or f"{config.node}-{secrets.token_hex(4)}"
    logs.configure(service, name, level=config.log_level, style=config.log_format)
    stop_tracing = tracing.start(service, name, config)
    etcd = connect(config)
    context = ServerContext(service, name, config, etcd)
    metrics_address, stop_metrics = telemetry.start_metrics(config)
    try:
        await context.lease.start()
        await setup(context)
        healthy = _add_standard_services(context)
        address = _listen(context.server, config)
        await context.server.start()
        told = {"metrics": metrics_address, **await _answer_probes(context, healthy)}
        _end_on_signals(context)
        await discovery.register(context.lease, service, name, address, told)
        give_back()
        _log.info("ready", address=address, metrics=metrics_address, tls=config.tls)
        exit_code = await context.ended
        await _drain(context, healthy)
        return exit_code
    finally:
        await _close(context)
        stop_metrics()
        await asyncio.to_thread(stop_tracing)


def run(
    service: str,
    config_class: type[MeshConfig],
    setup: Setup,
    argv: Sequence[str] | None = None,
    *,
    instance: Callable[[Any], str] | None = None,
) -> int:
    """A service's `main`: flags, configuration, `serve`. The exit code: 2 wrong usage, 1 could not serve.

    `instance` derives the instance's name from the configuration, where it must stay the same over restarts.
    """
    try:
        file, overrides = parse(f"permille-{service}", config_class, argv)
        config = load(config_class, file=file, overrides=overrides)
        return asyncio.run(_serve_and_end(service, config, setup, instance(config) if instance else None))
    except PermilleError as error:
        sys.stderr.write(f"permille-{service}: {error.message}\n" + (f"  {error.help}\n" if error.help else ""))
        return 2 if isinstance(error, InvalidArgument) else 1
    except KeyboardInterrupt:
        return 130


async def _serve_and_end(service: str, config: MeshConfig, setup: Setup, instance: str | None) -> int:
    exit_code = await serve(service, config, setup, instance=instance)
    end_without_threads(exit_code)
    return exit_code


def _add_standard_services(context: ServerContext) -> Any:
    servicer = _health.aio.HealthServicer()
    _add_health(servicer, context.server)
    for name in ("", *context.added):
        servicer._server_status[name] = health_pb2.HealthCheckResponse.SERVING
    context.server.add_generic_rpc_handlers((Reflection((*context.added, health.SERVICE_NAME, REFLECTION)),))
    return servicer


def _listen(server: grpc.aio.Server, config: MeshConfig) -> str:
    credentials = server_credentials(config)
    if credentials is None:
        require_loopback(config.listen, what="listen on")
    port = _add_port(server, config.listen, credentials, "--listen")
    if config.advertise:
        return config.advertise
    host = config.listen.rpartition(":")[0]
    everywhere = host in ("0.0.0.0", "[::]")  # noqa: S104 - compared, not bound
    return f"{socket.gethostname() if everywhere else host}:{port}"


def _add_port(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None, flag: str) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise FailedPrecondition(
            f"cannot listen on {address}: {error}",
            reason="PORT_IN_USE",
            help=f"choose another address with {flag} HOST:PORT, or port 0 for a free one",
            metadata={"address": address},
        ) from None


async def _answer_probes(context: ServerContext, healthy: Any) -> dict[str, str]:
    """Kubelets speak no TLS to a gRPC service that they probe. Where it answers, for discovery."""
    address = context.config.health
    if address in ("", "off"):
        return {}
    server = grpc.aio.server(options=_OPTIONS)
    _add_health(healthy, server)
    port = _add_port(server, address, None, "--health")
    await server.start()
    # Until the very end: a probe during the drain is told NOT_SERVING, and not refused.
    context.on_shutdown(partial(server.stop, 0))
    return {"health": f"{address.rpartition(':')[0]}:{port}"}


def _end_on_signals(context: ServerContext) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(ValueError, NotImplementedError):
            loop.add_signal_handler(number, context.end, 0)


async def _drain(context: ServerContext, healthy: Any) -> None:
    _log.info("draining", grace_s=context.config.drain_s)
    context.draining.set()
    await healthy.enter_graceful_shutdown()
    with suppress(PermilleError):
        await discovery.unregister(context.lease, context.service, context.instance)
    await context.server.stop(context.config.drain_s)


async def _close(context: ServerContext) -> None:
    await context.server.stop(0)
    for task in list(context.tasks):
        task.cancel()
    await asyncio.gather(*context.tasks, return_exceptions=True)
    for callback in reversed(context.callbacks):
        try:
            await callback()
        except Exception:
            _log.exception("a shutdown step failed")
    await context.channels.close()
    await context.lease.close()
    await context.etcd.close()
    _log.info("ended")
