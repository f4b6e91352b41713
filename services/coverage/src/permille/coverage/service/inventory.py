"""Where targets are: the nodes whose controllers are registered in etcd, as they describe themselves."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping
from typing import Protocol

import grpc
from permille.api.controller.v1 import controller_pb2, controller_pb2_grpc
from permille.coverage.domain.node import Listing, Node
from permille.coverage.domain.target import Target
from permille.coverage.service.wire import backend_value, node_of
from permille.mesh import discovery
from permille.mesh.channels import Channels
from permille.mesh.errors import Code, NotFound, PermilleError, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error

_ANSWER_S = 5.0
_AT_ONCE = 64
_AWAY = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


class Inventory(Protocol):
    """What there is to record."""

    async def nodes(self, target: Target) -> Listing:
        """Nodes on which the target may be, with what can be recorded there."""
        ...


class ControllerInventory:
    """Asks the controllers; `zones`: of nodes whose controllers do not know it, or know it wrong."""

    def __init__(self, etcd: Etcd, channels: Channels, zones: Mapping[str, str]) -> None:
        self._etcd = etcd
        self._channels = channels
        self._zones = zones

    async def nodes(self, target: Target) -> Listing:
        """Nodes that the target may be on. Raises `NotFound` for an unknown node, `Unavailable` without controllers."""
        if target.node and await discovery.find(self._etcd, "controller", target.node):
            return Listing((await self._ask(target.node, target),))
        running = [endpoint.instance for endpoint in await discovery.resolve(self._etcd, "controller")]
        if not running:
            raise Unavailable(
                "no controller is running, so nothing can be recorded",
                reason="SERVICE_ABSENT",
                help="start everything with `permille up`, or permille-controller on each node",
                retry_after_s=2.0,
            )
        if target.node:
            raise _unknown_node(target.node, running)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: str) -> Node | PermilleError:
            async with slots:
                try:
                    return await self._ask(name, target)
                except PermilleError as error:
                    if error.code not in _AWAY:
                        raise
                    return error

        answers = dict(zip(running, await asyncio.gather(*map(ask, running)), strict=True))
        nodes = tuple(node for node in answers.values() if isinstance(node, Node))
        if not nodes:
            raise next(error for error in answers.values() if isinstance(error, PermilleError))
        return Listing(nodes, tuple(name for name, answer in answers.items() if isinstance(answer, PermilleError)))

    async def _ask(self, name: str, target: Target) -> Node:
        stub = controller_pb2_grpc.ControllerServiceStub(await self._channels.to("controller", name))
        request = controller_pb2.GetNodeRequest(
            name=f"nodes/{name}",
            pids=target.pids,
            process_name="" if target.pids else target.process_name,
            cgroup=target.cgroup,
            container_id=target.container_id,
            pod=target.pod,
            selector=target.selector,
            backend=backend_value(target.backend),
        )
        try:
            answer = await stub.GetNode(request, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return node_of(name, answer.node, self._zones.get(name, ""), target.backend)


def _unknown_node(name: str, running: list[str]) -> NotFound:
    near = difflib.get_close_matches(name, running, n=3, cutoff=0.5)
    return NotFound(
        f"no controller of node {name} is running",
        reason="NODE_NOT_FOUND",
        help=f"did you mean {' or '.join(near)}?" if near else f"nodes running now: {', '.join(sorted(running)[:20])}",
        metadata={"node": name, "nearest": ", ".join(near)},
    )
