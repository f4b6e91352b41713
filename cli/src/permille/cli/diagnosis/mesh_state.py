"""What of the mesh runs, and what its controller says about this machine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from permille.api.controller.v1 import controller_pb2
from permille.cli.client import MeshClient, answer, mesh_client
from permille.cli.supervision.readiness import healthy
from permille.cli.supervision.state_lock import holder
from permille.mesh import discovery
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import Endpoint
from permille.mesh.errors import PermilleError

SERVICES = ("allocator", "controller", "coverage", "decoder")
_ANSWER_S = 10.0


@dataclass(frozen=True)
class ServiceState:
    """One instance of a service; an absent service has no address."""

    service: str
    instance: str = ""
    address: str = ""
    healthy: bool = False
    metrics: str = ""


@dataclass(frozen=True)
class MeshState:
    """`up_pid`: the `permille up` on this state folder, or 0. `node` is None when no controller answered."""

    up_pid: int
    services: list[ServiceState] = field(default_factory=list)
    node: controller_pb2.Node | None = None
    error: PermilleError | None = None


async def mesh_state(config: MeshConfig) -> MeshState:
    """Never fails: what cannot be had is missing in the answer, and `error` says why."""
    up_pid = holder(config.state_dir)
    try:
        async with mesh_client(config) as client:
            services = [state for service in SERVICES for state in await _states(client, service)]
            try:
                return MeshState(up_pid, services, await _node(client))
            except PermilleError as error:
                return MeshState(up_pid, services, error=error)
    except PermilleError as error:
        return MeshState(up_pid, error=error)


async def _states(client: MeshClient, service: str) -> list[ServiceState]:
    endpoints = await discovery.resolve(client.etcd, service)
    if not endpoints:
        return [ServiceState(service)]
    well = await asyncio.gather(*(_healthy(client, endpoint) for endpoint in endpoints))
    return [
        ServiceState(service, endpoint.instance, endpoint.address, is_well, endpoint.metadata.get("metrics", ""))
        for endpoint, is_well in zip(endpoints, well, strict=True)
    ]


async def _healthy(client: MeshClient, endpoint: Endpoint) -> bool:
    try:
        return await healthy(client.channels, endpoint)
    except PermilleError:
        return False


async def _node(client: MeshClient) -> controller_pb2.Node:
    controller = await client.controller()
    return (await answer(controller.GetNode(controller_pb2.GetNodeRequest(), timeout=_ANSWER_S))).node
