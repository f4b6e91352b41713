"""Nodes on which one operation at a time records heavily: part of what unfinished operations have reserved in etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.backoff import until_available
from permille.mesh.errors import ResourceExhausted
from permille.mesh.operation_names import operation_id
from permille.mesh.operations import OperationStore, Reservation

_AGAIN_S = 5.0


class HeavyNodes:
    """Taken in one transaction by the operation that is worked on here, and given back with its end at the latest."""

    def __init__(self, operations: OperationStore) -> None:
        self._operations = operations

    async def take(self, operation: str, nodes: Collection[str]) -> dict[str, str]:
        """The operation has these nodes (`nodes/<node>`) and no others: {}; or has what it had: who has which of them.

        Raises `Aborted` when another process has taken the operation over.
        """
        return await until_available(lambda: self._take(operation, sorted(nodes)))

    async def _take(self, operation: str, nodes: list[str]) -> dict[str, str]:
        identity = operation_id(operation)
        while True:
            reserved, revision = await self._operations.reservations()
            own = coverage_pb2.Reservation.FromString(reserved.pop(identity, b""))
            if list(own.nodes) == nodes:
                return {}
            holders = {node: other for other, content in reserved.items() for node in held([content])}
            if others := {node: holders[node] for node in nodes if node in holders}:
                return others
            own.nodes[:] = nodes
            content = own.SerializeToString(deterministic=True)
            # What is given back needs no room.
            if await self._operations.reserve(operation, Reservation(content, revision if nodes else None)):
                return {}
            await asyncio.sleep(0)


def held(reserved: Collection[bytes]) -> set[str]:
    """Nodes, as `nodes/<node>`, that these reservations have."""
    return {node for content in reserved for node in coverage_pb2.Reservation.FromString(content).nodes}


def busy(node: str) -> ResourceExhausted:
    """Another operation has it."""
    return ResourceExhausted(
        f"another request's heavy session records on {node}",
        reason="QUOTA_IN_USE",
        help="ask again when it has ended; a node has one heavy session at a time",
        metadata={"node": node},
        retry_after_s=_AGAIN_S,
    )
