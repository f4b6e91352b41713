"""TraceRequests whose end asks nobody, and refusals that are not meant; what the API server keeps is kept here."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from kubernetes_asyncio.client import ApiException
from permille.coverage.domain.spatial_sampler import Sampling
from permille.coverage.service.kubernetes.cluster import Cluster, Object, Refusals
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.request_work import RequestWork
from permille.coverage.service.kubernetes.user_rights import UserRights
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd

FORBIDDEN = ApiException(status=403, reason="Forbidden")


class Kept:
    """One TraceRequest that has to wait."""

    async def get(self, _plural: str, _namespace: str, _name: str) -> Object | None:
        waits = {"type": "Accepted", "status": "False", "reason": "NoInstance", "message": "nothing to record yet"}
        metadata = {"uid": "r1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": metadata, "status": {"conditions": [waits]}}


async def test_a_request_that_never_began_is_deleted_also_without_coverage(mesh_config: MeshConfig, etcd: Etcd) -> None:
    channels = Channels(mesh_config, etcd)
    work = RequestWork(
        cast("Cluster", Kept()),
        cast("UserRights", None),
        cast("Watched", None),
        Operations(channels, patience_s=3600),
        sampling=Sampling(),
        min_gain=0.02,
        min_gain_per_core_second=0.0,
        node_patience_s=60,
    )
    try:
        async with asyncio.timeout(60):
            await work.stop("default", "slow-checkout", "r1")
    finally:
        await channels.close()


@pytest.mark.parametrize(
    ("seconds", "meant"),
    [
        ((100.0, 105.0, 109.9, 110.0), [False, False, False, True]),
        # Long after the first one it is another refusal.
        ((100.0, 200.0, 205.0, 210.0), [False, False, False, True]),
    ],
)
def test_a_refusal_is_meant_when_it_goes_on(seconds: tuple[float, ...], meant: list[bool]) -> None:
    clock = iter(seconds)
    refusals = Refusals(lambda: next(clock))
    assert [refusals.meant(FORBIDDEN) == "403 Forbidden" for _ in seconds] == meant


def test_a_server_that_is_away_refuses_nothing() -> None:
    assert Refusals(lambda: 100.0).meant(ApiException(status=503, reason="Service Unavailable")) == ""
