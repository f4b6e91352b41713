"""Registration under a lease against a real etcd."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from permille.mesh.discovery import register, resolve, unregister, wait_for
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import DeadlineExceeded
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease


async def test_a_registered_instance_is_found_until_it_leaves(etcd: Etcd) -> None:
    # Nobody dies here, and on a busy machine two seconds may pass without a sign of life.
    lease = Lease(etcd, ttl_s=60)
    await lease.start()
    await register(lease, "controller", "n1", "127.0.0.1:7", {"cores": "2"})
    await register(lease, "controller", "n2", "127.0.0.1:8")
    found = await resolve(etcd, "controller")
    assert [(e.instance, e.address, e.metadata) for e in found] == [
        ("n1", "127.0.0.1:7", {"cores": "2"}),
        ("n2", "127.0.0.1:8", {}),
    ]
    await unregister(lease, "controller", "n2")
    assert [e.instance for e in await resolve(etcd, "controller")] == ["n1"]
    await lease.close()
    assert await resolve(etcd, "controller") == []


async def test_an_instance_stays_beyond_its_time_to_live_while_it_lives(etcd: Etcd) -> None:
    lease = Lease(etcd, ttl_s=5)
    await lease.start()
    await register(lease, "coverage", "c1", "127.0.0.1:7")
    await asyncio.sleep(8)
    assert len(await resolve(etcd, "coverage")) == 1
    await lease.close()


async def test_a_dead_process_vanishes_by_itself(etcd: Etcd) -> None:
    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    await register(lease, "coverage", "c1", "127.0.0.1:7")
    assert lease._task is not None
    lease._task.cancel()
    async for state in etcd.observe_prefix("/permille/v1/services/coverage/"):
        if not state:
            break


async def test_it_registers_again_after_etcd_came_back_with_nothing(etcd: Etcd, etcd_server: EmbeddedEtcd) -> None:
    lease = Lease(etcd, ttl_s=2)
    await lease.start()
    await register(lease, "decoder", "d1", "127.0.0.1:9")
    await etcd_server.stop()
    shutil.rmtree(etcd_server.folder / "data")
    await register(lease, "decoder", "d2", "127.0.0.1:10")
    await etcd_server.start()
    for instance in ("d1", "d2"):
        assert (await wait_for(etcd, "decoder", instance=instance, timeout_s=60)).instance == instance
    await lease.close()


async def test_waiting_for_nobody_says_whom(etcd: Etcd) -> None:
    with pytest.raises(DeadlineExceeded, match="no allocator a1 registered within"):
        await wait_for(etcd, "allocator", instance="a1", timeout_s=0.1)
