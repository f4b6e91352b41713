"""How troubled each program has been lately, in etcd, shared by all replicas."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from urllib.parse import quote

from permille.coverage.domain.stability import Stability
from permille.coverage.service.stored_record import fields_of, stored
from permille.mesh.etcd import Etcd

_PREFIX = "/permille/v1/coverage/stability/"


class StabilityStore:
    """Troubles by process name, each cause once."""

    def __init__(self, etcd: Etcd, clock_s: Callable[[], float] = time.time) -> None:
        self._etcd = etcd
        self._clock_s = clock_s

    async def of(self, names: Iterable[str]) -> dict[str, float]:
        """What is left of these programs' troubles; those without any are left out. Raises `Unavailable`."""
        wanted = {_key(name): name for name in names}
        known = await self._etcd.values(wanted)
        return {wanted[key]: _stability(value).now(self._clock_s()) for key, value in known.items()}

    async def trouble(self, name: str, cause: str) -> None:
        """One more, unless its cause has been counted. Raises `Unavailable`."""

        async def after(before: bytes | None) -> bytes:
            known = _stability(before) if before else Stability()
            return stored(known.after_trouble(self._clock_s(), cause))

        await self._etcd.replace(_key(name), after)


def _key(name: str) -> str:
    return _PREFIX + quote(name, safe="")


def _stability(value: bytes) -> Stability:
    known = fields_of(Stability, json.loads(value))
    return Stability(**known | {"causes": tuple(known.get("causes", ()))})
