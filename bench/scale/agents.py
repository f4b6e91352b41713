"""A process with many node agents: `agents.py FIRST COUNT SESSION ETCD STATE_DIR`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from permille.mesh.config import MeshConfig
from permille.mesh.store import open_store
from scale.node_agent import NodeAgent, RecordedSession

# Longer than the default: a machine that is a whole cluster stands still for longer than any node.
LEASE_S = 30


async def main(first: int, count: int, session_id: str, etcd: str, state: Path) -> None:
    config = MeshConfig(etcd=(etcd,), state_dir=state, lease_ttl_s=LEASE_S)
    store = open_store(config.store_url)
    recorded = await RecordedSession.load(store, session_id)
    agents = [NodeAgent(f"node-{number}", config, store, recorded) for number in range(first, first + count)]
    for agent in agents:
        await agent.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5])))
