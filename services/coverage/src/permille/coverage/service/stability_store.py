"""How troubled each program has been lately, in etcd, shared by all replicas."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from urllib.parse import quote

from permille.coverage.domain.stability import Stability
from permille.mesh.etcd import Etcd, KeyValue, Put, missing, unchanged

_PREFIX = "/permille/v1/coverage/stability/"
_ATTEMPTS = 5


class StabilityStore:
    """Troubles by process name: each start for an anomaly is one."""

    def __init__(self, etcd: Etcd, clock_s: Callable[[], float] = time.time) -> None:
        self._etcd = etcd
        self._clock_s = clock_s

    async def of(self, names: Iterable[str]) -> dict[str, float]:
        """What is left of these programs' troubles; those without any are left out. Raises `Unavailable`."""
        wanted = set(names)
        known = await self._etcd.prefix(_PREFIX) if wanted else []
        found = {_key(name): name for name in wanted}
        return {found[kv.key]: _stability(kv).now(self._clock_s()) for kv in known if kv.key in found}

    async def trouble(self, name: str) -> None:
        """One more. Raises `Unavailable`."""
        key = _key(name)
        for _ in range(_ATTEMPTS):
            before = await self._etcd.get(key)
            after = (_stability(before) if before else Stability()).after_trouble(self._clock_s())
            held = unchanged(key, before.mod_revision) if before else missing(key)
            if (await self._etcd.txn([held], [Put(key, json.dumps(asdict(after)).encode())])).succeeded:
                return


def _key(name: str) -> str:
    return _PREFIX + quote(name, safe="")


def _stability(kv: KeyValue) -> Stability:
    return Stability(**json.loads(kv.value))
