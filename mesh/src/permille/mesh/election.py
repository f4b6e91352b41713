"""One leader among the replicas of a service: a leased key in etcd."""

from __future__ import annotations

import structlog
from permille.mesh.backoff import until_written
from permille.mesh.etcd import Etcd, Put, missing
from permille.mesh.lease import Lease

_log = structlog.get_logger(__name__)
_ROOT = "/permille/v1/elections/"


class Election:
    """Who leads `name`. The key goes with the leader's lease: a dead leader is replaced after the lease's time."""

    def __init__(self, etcd: Etcd, lease: Lease, name: str, instance: str) -> None:
        self._etcd = etcd
        self._lease = lease
        self._key = _ROOT + name
        self._me = instance.encode()

    async def won(self) -> None:
        """Returns when this instance leads; waits for an etcd that is away or full."""
        async for state in self._etcd.observe_prefix(self._key):
            holder = state.get(self._key)
            if holder is None:
                if await until_written(self._take):
                    return
            elif holder.value == self._me:
                return
            else:
                _log.info("another one leads", leader=holder.value.decode())

    async def _take(self) -> bool:
        free, mine = [missing(self._key)], self._me
        return (await self._lease.bound(lambda lease: self._etcd.txn(free, [Put(self._key, mine, lease)]))).succeeded

    async def lost(self) -> None:
        """Returns when this instance leads no longer."""
        async for state in self._etcd.observe_prefix(self._key):
            holder = state.get(self._key)
            if holder is None or holder.value != self._me:
                return
