"""How much trace a pod's container is expected to write: asked of coverage, which has measured it or guesses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.kubernetes.instances import Container
from permille.coverage.domain.rates import FIRST_BYTES_PER_SECOND
from permille.coverage.domain.spatial_sampler import Instance
from permille.coverage.service.kubernetes.operations import Operations
from permille.mesh.errors import PermilleError

_PERIOD_MS = 1000
_FRESH_S = 60.0


class ExpectedRates:
    """Bytes per second by version: one instance of each is asked about, at most once a minute."""

    def __init__(self, operations: Operations, clock: Callable[[], float] = time.monotonic) -> None:
        self._operations = operations
        self._clock = clock
        self._known: dict[str, tuple[float, float]] = {}

    async def learn(self, namespace: str, instances: Sequence[Instance]) -> None:
        """Asks where what is known is old. What nobody can tell is a first guess."""
        now_s = self._clock()
        one_of = {self._key(namespace, one): one for one in instances}
        old = {key: one for key, one in one_of.items() if self._known.get(key, (0.0, 0.0))[1] <= now_s}
        rates = await asyncio.gather(*(self._ask(namespace, one) for one in old.values()))
        self._known = {key: known for key, known in self._known.items() if known[1] > now_s}
        self._known |= {key: (rate, now_s + _FRESH_S) for key, rate in zip(old, rates, strict=True)}

    def estimated(self, namespace: str, instances: Sequence[Instance]) -> list[Instance]:
        """The instances with what is known of their versions."""
        guess = FIRST_BYTES_PER_SECOND, 0.0
        return [
            replace(one, bytes_per_second=self._known.get(self._key(namespace, one), guess)[0]) for one in instances
        ]

    async def _ask(self, namespace: str, one: Instance) -> float:
        if isinstance(one.process, Container):
            target = coverage_pb2.Target(node=f"nodes/{one.node.name}", container_id=one.process.container_id)
            wish = coverage_pb2.CoverageRequest(target=target, period_ms=_PERIOD_MS, namespace=namespace)
            with suppress(PermilleError):
                return float((await self._operations.plan(wish)).expected_bytes)
        return FIRST_BYTES_PER_SECOND

    @staticmethod
    def _key(namespace: str, one: Instance) -> str:
        return f"{namespace}/{one.version}"
