"""One leader at a time."""

from __future__ import annotations

import asyncio

from permille.mesh.election import Election
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease


async def test_one_leads_and_the_next_one_follows_when_its_lease_is_gone(etcd: Etcd) -> None:
    leases = [Lease(etcd, 60) for _ in range(2)]
    for lease in leases:
        await lease.start()
    first, second = (Election(etcd, lease, "operator", name) for lease, name in zip(leases, "ab", strict=True))
    await first.won()
    waiting = asyncio.create_task(second.won())
    losing = asyncio.create_task(first.lost())
    # Who leads, leads: asking again changes nothing.
    await first.won()
    assert not waiting.done() and not losing.done()
    await leases[0].close()
    await asyncio.gather(waiting, losing)
    await leases[1].close()


async def test_different_elections_have_different_leaders(etcd: Etcd) -> None:
    lease = Lease(etcd, 60)
    await lease.start()
    await Election(etcd, lease, "operator", "a").won()
    await Election(etcd, lease, "operator-of-another", "b").won()
    await lease.close()
