"""Whether a service of this machine is found and says that it is well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from permille.mesh import discovery
from permille.mesh.channels import Channels
from permille.mesh.discovery import Endpoint
from permille.mesh.errors import PermilleError
from permille.mesh.etcd import Etcd

# Not typed by its authors.
_health_stub: Callable[[grpc.aio.Channel], Any] = health_pb2_grpc.HealthStub
_CHECK_S = 2.0
_PAUSE_S = 0.1


async def serving(etcd: Etcd, channels: Channels, service: str, node: str) -> Endpoint | None:
    """The instance of `service` on `node` whose health check passes; None while there is none."""
    try:
        found = await discovery.resolve(etcd, service)
        for endpoint in found:
            if endpoint.instance != node and not endpoint.instance.startswith(f"{node}-"):
                continue
            if await healthy(channels, endpoint):
                return endpoint
    except PermilleError:
        pass
    return None


async def healthy(channels: Channels, endpoint: Endpoint) -> bool:
    """Whether one instance answers its health check with SERVING."""
    stub = _health_stub(await channels.to(endpoint.service, endpoint.instance))
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_CHECK_S)
    except grpc.RpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def until_serving(etcd: Etcd, channels: Channels, service: str, node: str) -> Endpoint:
    """Waits until `serving` finds one."""
    while True:
        endpoint = await serving(etcd, channels, service, node)
        if endpoint is not None:
            return endpoint
        await asyncio.sleep(_PAUSE_S)
