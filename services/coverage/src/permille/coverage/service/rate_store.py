"""The rates learnt from past sessions, in etcd, shared by all replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from urllib.parse import quote

from permille.coverage.domain.rates import Observation, Rates
from permille.mesh.etcd import Etcd, KeyValue, Put, missing, unchanged

_PREFIX = "/permille/v1/coverage/rates/"
_ATTEMPTS = 5


class RateStore:
    """Rates by recorder and process name."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd

    async def of(self, backend: str, names: Iterable[str]) -> dict[str, Rates]:
        """What is known of these processes; names never recorded are left out. Raises `Unavailable`."""
        known = {}
        for name in set(names):
            kv = await self._etcd.get(_key(backend, name))
            if kv is not None:
                known[name] = _rates(kv)
        return known

    async def learn(self, backend: str, name: str, seen: Observation) -> None:
        """Adds one finished session. Raises `Unavailable`."""
        key = _key(backend, name)
        for _ in range(_ATTEMPTS):
            before = await self._etcd.get(key)
            rates = (_rates(before) if before else Rates()).after(seen)
            held = unchanged(key, before.mod_revision) if before else missing(key)
            value = json.dumps(asdict(rates), sort_keys=True).encode()
            if (await self._etcd.txn([held], [Put(key, value)])).succeeded:
                return


def _key(backend: str, name: str) -> str:
    return f"{_PREFIX}{backend}/{quote(name, safe='')}"


def _rates(kv: KeyValue) -> Rates:
    return Rates(**json.loads(kv.value))
