"""A lease kept alive in the background, and the keys that live as long as this process does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog
from permille.mesh.errors import PermilleError, ResourceExhausted, Unavailable
from permille.mesh.etcd import Etcd

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")
# An etcd that is away, or full.
_LATER = (Unavailable, ResourceExhausted)


class Lease:
    """One lease of this process.

    Its keys vanish `ttl_s` after the process dies, and are put again when etcd comes back and has forgotten it.
    """

    def __init__(self, etcd: Etcd, ttl_s: int = 10) -> None:
        self._etcd = etcd
        self._ttl_s = ttl_s
        self._id = 0
        self._keys: dict[str, bytes] = {}
        # Those that etcd has not got yet.
        self._owed: set[str] = set()
        self._granting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def id(self) -> int:
        """etcd's id of the lease; 0 while there is none."""
        return self._id

    async def start(self) -> None:
        """Begins to keep the lease alive. Without an etcd, or one with room, that is no error: the lease comes then."""
        with suppress(*_LATER):
            await self.granted()
        self._task = asyncio.create_task(self._keep(), name="lease")

    async def granted(self) -> int:
        """The lease's id, granted now if there is none. Raises `Unavailable`; `ResourceExhausted` when etcd is full."""
        async with self._granting:
            if self._id == 0:
                lease = await self._etcd.grant(self._ttl_s)
                # At once: up to then nobody finds what is registered by them.
                await asyncio.gather(*(self._etcd.put(key, value, lease) for key, value in self._keys.items()))
                self._owed.clear()
                self._id = lease
            return self._id

    async def put(self, key: str, value: bytes) -> None:
        """Writes a key that lives as long as this process; while etcd is away or full it is kept for later."""
        self._keys[key] = value
        try:
            await self.bound(lambda lease: self._etcd.put(key, value, lease))
        except _LATER:
            self._owed.add(key)

    async def forget(self, key: str) -> None:
        """Removes a key. Raises `Unavailable` when etcd is away; the key then vanishes with the lease."""
        self._keys.pop(key, None)
        self._owed.discard(key)
        await self._etcd.delete(key)

    async def close(self) -> None:
        """Ends the lease: its keys vanish at once where etcd can be reached, else after the time to live."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        lease, self._id = self._id, 0
        if lease:
            with suppress(Unavailable):
                await self._etcd.revoke(lease)

    async def bound(self, write: Callable[[int], Awaitable[_T]]) -> _T:
        """The result of a write that names this lease; with a new one where etcd has forgotten it.

        Raises what the write raises, and what `granted` raises.
        """
        while True:
            lease = await self.granted()
            try:
                return await write(lease)
            except PermilleError as error:
                if error.reason != "ETCD_LEASE_GONE":
                    raise
                self._forgotten(lease)

    def _forgotten(self, lease: int) -> None:
        if self._id == lease:
            self._id = 0

    async def _keep(self) -> None:
        told = ""
        while True:
            try:
                lease = await self.granted()
                # So that the lease still lives when the next member of etcd is asked.
                if await self._etcd.keep_alive(lease, within_s=self._ttl_s / 3):
                    await self._pay(lease)
                    if told:
                        _log.info("etcd is back", lease_kept=True)
                    told = ""
                    await asyncio.sleep(self._ttl_s / 3)
                else:
                    _log.warning("etcd has forgotten the lease; registering again", ttl_s=self._ttl_s)
                    self._forgotten(lease)
            except PermilleError as error:
                if told != error.reason:
                    full = isinstance(error, ResourceExhausted)
                    event = "waiting until etcd has room" if full else "etcd does not answer; trying again"
                    _log.warning(event, error=error.message, help=error.help)
                told = error.reason
                await asyncio.sleep(min(1.0, self._ttl_s / 6))

    async def _pay(self, lease: int) -> None:
        while self._owed:
            key = next(iter(self._owed))
            await self._etcd.put(key, self._keys[key], lease)
            self._owed.discard(key)
