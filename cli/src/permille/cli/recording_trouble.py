"""Why a recording takes long: a full store, one that is away. The operation goes on; its user should know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from permille.api.controller.v1 import controller_pb2
from permille.cli.client import MeshClient, answer
from permille.mesh.errors import PermilleError
from permille.mesh.operation_names import operation_id

_PAUSE_S = 2.0
_NEWEST = 50


@asynccontextmanager
async def trouble_told(
    client: MeshClient, operation: str, nodes: Iterable[str], tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """While the block runs, `tell` gets what hinders the operation's sessions on `nodes`, each text once."""
    task = asyncio.create_task(_watch(client, operation_id(operation), list(nodes), tell))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _watch(client: MeshClient, identity: str, nodes: list[str], tell: Callable[[str], None]) -> None:
    told: set[str] = set()
    while True:
        await asyncio.sleep(_PAUSE_S)
        for node in nodes:
            with suppress(PermilleError):
                for session in await _sessions(client, node):
                    # Coverage begins its sessions with the operation's id and a number.
                    if session.error_message and session.request_id.startswith(f"{identity}-"):
                        text = f"{session.error_message}\n  {session.error_help}".rstrip()
                        if text not in told:
                            told.add(text)
                            tell(text)


async def _sessions(client: MeshClient, node: str) -> list[controller_pb2.Session]:
    controller = await client.controller(node.removeprefix("nodes/"))
    request = controller_pb2.ListSessionsRequest(parent=node, page_size=_NEWEST)
    return list((await answer(controller.ListSessions(request))).sessions)
