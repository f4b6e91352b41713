"""TraceRequests whose end asks nobody, and refusals that are not meant; what the API server keeps is kept here."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from kubernetes_asyncio.client import ApiException
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.spatial_sampler import Sampling
from permille.coverage.service.kubernetes.cluster import Cluster, Object, Refusals
from permille.coverage.service.kubernetes.handlers import settings
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.request_progress import RequestProgress
from permille.coverage.service.kubernetes.request_work import RequestWork
from permille.coverage.service.kubernetes.session_work import Outcome
from permille.coverage.service.kubernetes.user_rights import UserRights
from permille.coverage.service.kubernetes.watched import Watched
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Aborted, FailedPrecondition
from permille.mesh.etcd import Etcd

METADATA = {"namespace": "default", "name": "slow-checkout", "uid": "r1", "generation": 1, "resourceVersion": "7"}
PLACE: Any = {"name": "slow-checkout-0", "podUID": "p1"}
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


class Finished:
    """A TraceRequest that another operator has ended."""

    def __init__(self) -> None:
        done = {"type": "Complete", "status": "True", "reason": "Decoded", "message": "2 of 2 pods"}
        self.request: Object = {"metadata": METADATA, "status": {"conditions": [done]}}

    async def get(self, _plural: str, _namespace: str, _name: str) -> Object:
        return self.request

    async def patch_status(self, *_: str, version: str) -> None:
        raise AssertionError(f"{version} is written over")


async def test_a_leader_that_stood_still_does_not_write_over_how_its_successor_ended_a_request() -> None:
    request = {"metadata": METADATA, "spec": {}, "status": {"sessions": [], "conditions": []}}
    progress = RequestProgress(cast("Cluster", Finished()), request, lambda: datetime.now(UTC))
    progress.ended(PLACE, Outcome(True, "Decoded", "recorded"))
    for write in (progress.begin, progress.end):
        with pytest.raises(Aborted, match="slow-checkout is finished"):
            await write()


class Refusing:
    """An API server that refuses the first call of all, and keeps what comes after that."""

    def __init__(self) -> None:
        self.calls = 0
        self.written = asyncio.Event()

    async def get(self, _plural: str, _namespace: str, _name: str) -> Object:
        self.calls += 1
        if self.calls == 1:
            raise FORBIDDEN
        return {"metadata": METADATA, "status": {}}

    async def patch_status(self, *_: object, version: str) -> None:
        assert version == METADATA["resourceVersion"]
        self.written.set()

    async def admission(self) -> tuple[None, None, str]:
        self.calls += 1
        if self.calls == 1:
            raise FORBIDDEN
        self.written.set()
        return None, None, ""


async def test_what_is_refused_once_of_a_requests_progress_is_told_the_next_time() -> None:
    server = Refusing()
    request = {"metadata": METADATA, "spec": {}, "status": {"sessions": [PLACE], "conditions": []}}
    progress = RequestProgress(cast("Cluster", server), request, lambda: datetime.now(UTC))
    telling = asyncio.create_task(progress.follow())
    progress.ended(PLACE, Outcome(True, "Decoded", "recorded"))
    async with asyncio.timeout(60):
        await server.written.wait()
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


async def test_an_operator_that_is_refused_the_admission_policy_looks_again(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("permille.coverage.service.kubernetes.user_rights._LOOK_S", 0.01)
    server = Refusing()
    looking = asyncio.create_task(UserRights(cast("Cluster", server), etcd).run())
    async with asyncio.timeout(60):
        await asyncio.wait({looking, asyncio.create_task(server.written.wait())}, return_when="FIRST_COMPLETED")
    assert not looking.done()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


def test_an_api_server_is_waited_for_however_long_it_is_away() -> None:
    backoffs: Any = settings().networking.error_backoffs
    for _ in range(2):
        first, *more = itertools.islice(backoffs, 1000)
        assert first == 1
        assert sum(more) > 3600


class Gates:
    """Channels that a test opens one by one, each with an error."""

    def __init__(self) -> None:
        self.opened: list[asyncio.Future[Any]] = []

    async def to(self, _service: str) -> Any:
        self.opened.append(asyncio.get_running_loop().create_future())
        return await self.opened[-1]


async def test_nothing_is_settled_while_one_of_two_starts_of_a_request_id_is_under_way() -> None:
    gates = Gates()
    operations = Operations(cast("Channels", gates), patience_s=60)
    asking = [asyncio.create_task(operations.start("r1.p1", coverage_pb2.CoverageRequest())) for _ in range(2)]
    async with asyncio.timeout(60):
        while len(gates.opened) < 2:
            await asyncio.sleep(0.01)
        refusal = FailedPrecondition("no", reason="NO")
        gates.opened[0].set_exception(refusal)
        await asyncio.wait(asking, return_when="FIRST_COMPLETED")
        settling = asyncio.create_task(operations.settled("r1."))
        await asyncio.sleep(0.1)
        assert not settling.done()
        gates.opened[1].set_exception(refusal)
        await settling
    assert [type(failed) for failed in await asyncio.gather(*asking, return_exceptions=True)] == [
        FailedPrecondition
    ] * 2


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
