"""A service of a test, served by the mesh's own bootstrap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from permille.mesh import discovery
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd
from permille.mesh.server import ServerContext, serve


@asynccontextmanager
async def serving(
    service: str, config: MeshConfig, setup: Callable[[ServerContext], Awaitable[None]], instance: str
) -> AsyncIterator[ServerContext]:
    # It leaves, it does not die, and on a busy machine two seconds may pass without a sign of life.
    config = config.model_copy(update={"lease_ttl_s": 60})
    contexts: list[ServerContext] = []

    async def remember(context: ServerContext) -> None:
        contexts.append(context)
        await setup(context)

    task = asyncio.create_task(serve(service, config, remember, instance=instance))
    client = Etcd(config.etcd)
    await discovery.wait_for(client, service, instance=instance, timeout_s=60)
    await client.close()
    try:
        yield contexts[0]
    finally:
        contexts[0].end(0)
        assert await task == 0
