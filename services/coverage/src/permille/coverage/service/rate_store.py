"""The rates learnt from past sessions, in etcd, shared by all replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from urllib.parse import quote

from permille.coverage.domain.rates import Observation, Rates
from permille.coverage.service.stored_record import fields_of, stored
from permille.mesh.etcd import Etcd

_PREFIX = "/permille/v1/coverage/rates/"


class RateStore:
    """Rates by recorder and process name."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd

    async def of(self, backend: str, names: Iterable[str]) -> dict[str, Rates]:
        """What is known of these processes; names never recorded are left out. Raises `Unavailable`."""
        wanted = {_key(backend, name): name for name in names}
        return {wanted[key]: _rates(value) for key, value in (await self._etcd.values(wanted)).items()}

    async def learn(self, backend: str, name: str, *seen: Observation) -> None:
        """Adds finished sessions. Raises `Unavailable`."""

        async def after(before: bytes | None) -> bytes:
            return stored(reduce(Rates.after, seen, _rates(before) if before else Rates()))

        await self._etcd.replace(_key(backend, name), after)


def _key(backend: str, name: str) -> str:
    return f"{_PREFIX}{backend}/{quote(name, safe='')}"


def _rates(value: bytes) -> Rates:
    known = json.loads(value)
    # Of an earlier release, which counted functions: each of them has one block at least.
    blocks = known.get("blocks", known.get("functions"))
    return Rates(**fields_of(Rates, known) | {"blocks": blocks})
