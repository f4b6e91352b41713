"""Channels to other services: found through etcd, with TLS, deadlines, retries and trace propagation."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from permille.mesh import discovery, tracing
from permille.mesh.config import MeshConfig
from permille.mesh.credentials import channel_credentials, server_name
from permille.mesh.discovery import Endpoint
from permille.mesh.errors import DeadlineExceeded, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.plaintext import require_loopback

MOST_MESSAGE_BYTES = 16 << 20
# A stream may last as long as the longest recording and its decoding.
_STREAM_TIMEOUT_S = 3600.0
# How long a channel to replicas that are gone stays open for the calls still on it.
_RETIRED_S = 60.0

# Starts are idempotent by request_id, so every method may be tried again (gRPC retry design, A6). CANCELLED is what a
# server says that has begun to drain when a call arrives; what is given up here is not tried again.
_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
            },
        }
    ],
}
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.enable_retries", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
)


class Channels:
    """The channels of one process, shared by its calls: one for each replica set, round robin over its members."""

    def __init__(self, config: MeshConfig, etcd: Etcd, *, absent_s: float = 0.0) -> None:
        """`absent_s`: how long to look for a service that is not there, which may be about to register again."""
        self._config = config
        self._etcd = etcd
        self._absent_s = absent_s
        self._credentials = channel_credentials(config)
        # Made once: they cost more memory than a channel.
        self._interceptors: Sequence[Any] = [*_deadlines(config.call_timeout_s), *tracing.client_interceptors(config)]
        self._open: dict[str, tuple[str, grpc.aio.Channel]] = {}
        self._known: dict[str, list[Endpoint]] = {}
        self._retired: set[asyncio.Task[None]] = set()

    async def to(self, service: str, instance: str | None = None) -> grpc.aio.Channel:
        """A channel to any replica of a service, or to one instance (a controller's instance is its node).

        Calls without a deadline get `call_timeout_s`, streams an hour; UNAVAILABLE is tried up to five times, as is
        a call that a server which drains turns away.
        While etcd is away, the replicas known last are used. Raises `Unavailable` when nobody serves.
        """
        name = f"{service}/{instance or ''}"
        target = _target([endpoint.address for endpoint in await self._endpoints(name, service, instance)])
        known = self._open.get(name)
        if known is not None:
            if known[0] == target:
                return known[1]
            self._retire(known[1])
        channel = self._connect(service, target)
        self._open[name] = (target, channel)
        return channel

    async def close(self) -> None:
        """Closes all channels; calls still running on them end."""
        for task in list(self._retired):
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)
        opened, self._open = self._open, {}
        for _, channel in opened.values():
            await channel.close()

    async def _endpoints(self, name: str, service: str, instance: str | None) -> list[Endpoint]:
        try:
            found = await self._found(service, instance)
        except Unavailable:
            found = self._known.get(name, [])
            if not found:
                raise
        if not found:
            raise _nobody(service, instance)
        self._known[name] = found
        return found

    async def _found(self, service: str, instance: str | None) -> list[Endpoint]:
        if instance is None:
            found = await discovery.resolve(self._etcd, service)
        else:
            one = await discovery.find(self._etcd, service, instance)
            found = [one] if one else []
        if not found and self._absent_s:
            with suppress(DeadlineExceeded):
                found = [await discovery.wait_for(self._etcd, service, instance=instance, timeout_s=self._absent_s)]
        return found

    def _connect(self, service: str, target: str) -> grpc.aio.Channel:
        if self._credentials is None:
            for address in target.removeprefix("ipv4:").split(","):
                require_loopback(address, what=f"call {service} at")
            return grpc.aio.insecure_channel(target, options=_OPTIONS, interceptors=self._interceptors)
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", server_name(service)))
        return grpc.aio.secure_channel(target, self._credentials, options=options, interceptors=self._interceptors)

    def _retire(self, channel: grpc.aio.Channel) -> None:
        async def close() -> None:
            try:
                await asyncio.sleep(_RETIRED_S)
            finally:
                await channel.close()

        task = asyncio.create_task(close(), name="retired-channel")
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)


def _target(addresses: list[str]) -> str:
    numeric = [address for address in addresses if _is_ipv4(address)]
    if numeric:
        return "ipv4:" + ",".join(sorted(numeric))
    return random.choice(addresses)  # noqa: S311 - spreads load, guards nothing


def _is_ipv4(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.rpartition(":")[0]).version == 4
    except ValueError:
        return False


def _nobody(service: str, instance: str | None) -> Unavailable:
    who = f"{service} on {instance}" if instance else service
    return Unavailable(
        f"no {who} is running",
        reason="SERVICE_ABSENT",
        help=f"start it (`permille up`, or permille-{service} on its machine); `permille doctor` shows what runs",
        metadata={"service": service, "instance": instance or ""},
        retry_after_s=2.0,
    )


def _with_timeout(details: Any, timeout_s: float) -> Any:
    if details.timeout is not None:
        return details
    return grpc.aio.ClientCallDetails(
        details.method, timeout_s, details.metadata, details.credentials, details.wait_for_ready
    )


def _deadlines(unary_s: float) -> list[Any]:
    """Interceptors that give a deadline to each call that has none."""

    class Unary(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
            return await continuation(_with_timeout(details, unary_s), request)

    class ServerStream(grpc.aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
            return await continuation(_with_timeout(details, _STREAM_TIMEOUT_S), request)

    class ClientStream(grpc.aio.StreamUnaryClientInterceptor):
        async def intercept_stream_unary(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
            return await continuation(_with_timeout(details, _STREAM_TIMEOUT_S), requests)

    return [Unary(), ServerStream(), ClientStream()]
