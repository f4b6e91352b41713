"""How full the trace buffers of a recording are, while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from permille.api.controller.v1 import controller_pb2
from permille.cli.client import MeshClient, answer, parts
from permille.cli.rendering.trace_lines import buffers_text
from permille.mesh.backoff import Backoff
from permille.mesh.errors import PermilleError
from permille.mesh.operation_names import operation_id

# On one line nobody reads more.
_MOST_NODES = 16
_NEWEST = 50
_Session = controller_pb2.Session
_RECORDS = (_Session.STATE_PREPARING, _Session.STATE_RECORDING)


@asynccontextmanager
async def buffers_told(
    client: MeshClient, operation: str, nodes: Iterable[str], tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """While the block runs, `tell` gets a line on the buffers of the operation's sessions, several times a second."""
    recording: dict[str, _Session] = {}
    # A controller that is away ends its own watch: the operation tells that it is.
    tasks = [
        asyncio.create_task(_watch(client, operation_id(operation), node, recording, tell))
        for node in list(nodes)[:_MOST_NODES]
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(
    client: MeshClient, identity: str, node: str, recording: dict[str, _Session], tell: Callable[[str], None]
) -> None:
    pauses = Backoff(0.1, 1.0)
    while True:
        with suppress(PermilleError):
            controller = await client.controller(node.removeprefix("nodes/"))
            request = controller_pb2.ListSessionsRequest(parent=node, page_size=_NEWEST)
            for listed in (await answer(controller.ListSessions(request))).sessions:
                # Coverage begins its sessions with the operation's id and a number.
                if listed.request_id.startswith(f"{identity}-") and listed.state in _RECORDS:
                    watching = controller.WatchSession(controller_pb2.WatchSessionRequest(name=listed.name))
                    async for change in parts(watching):
                        if change.session.state not in _RECORDS:
                            break
                        recording[node] = change.session
                        tell(buffers_text(recording.values()))
                    watching.cancel()
                    pauses.reset()
        await pauses.pause()
