"""What is learnt of programs is kept in etcd, for this release, the next one and the one before, and not for ever."""

from __future__ import annotations

import json

from permille.coverage.domain.rates import Observation, Rates
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.stability_store import StabilityStore
from permille.mesh.etcd import Etcd

SLOW, FAST = Observation(1, 1000, 1 << 20, 0, 600, blocks=7), Observation(1, 1000, 9 << 20, 0, 900, blocks=5)


async def test_sessions_that_are_learnt_together_count_as_one_after_the_other(etcd: Etcd) -> None:
    rates = RateStore(etcd)
    await rates.learn("vpt", "redis", SLOW, FAST)
    assert await rates.of("vpt", ["redis", "gzip"]) == {"redis": Rates().after(SLOW).after(FAST)}


async def test_what_a_later_release_knows_besides_is_left_out(etcd: Etcd) -> None:
    rates, stability = RateStore(etcd), StabilityStore(etcd, lambda: 0.0)
    await rates.learn("vpt", "redis", SLOW)
    await stability.trouble("redis", "cause")
    before = await rates.of("vpt", ["redis"])
    for kept in await etcd.prefix("/permille/v1/coverage/"):
        await etcd.put(kept.key, json.dumps(json.loads(kept.value) | {"later": 1}).encode(), kept.lease)
    assert await rates.of("vpt", ["redis"]) == before
    assert await stability.of(["redis"]) == {"redis": 1.0}


async def test_what_nobody_adds_to_goes_in_time(etcd: Etcd) -> None:
    await RateStore(etcd).learn("vpt", "redis", SLOW)
    await StabilityStore(etcd).trouble("redis", "cause")
    assert all(kept.lease for kept in await etcd.prefix("/permille/v1/coverage/"))
