"""One TraceSession on a real coverage service; what the API server keeps is kept here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from kubernetes_asyncio.client import ApiException
from permille.coverage.domain.kubernetes.conditions import COMPLETE
from permille.coverage.service.kubernetes.cluster import Cluster, Object
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.session_work import Outcome, SessionWork
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd

from .coverage_process import Coverage, limited, result_of
from .served_controller import Controller, RecordedByOthers, controller_serving
from .served_decoder import Decoder

REQUEST = {
    "metadata": {"name": "slow-checkout", "namespace": "default", "uid": "r1"},
    "spec": {"purpose": "Anomaly"},
    "status": {"plan": {"periodMilliseconds": 100, "budgetBytes": 0}},
}
PLACE = {
    "name": "slow-checkout-0",
    "podName": "web-0",
    "podUID": "p1",
    "nodeName": "n1",
    "container": "web",
    "containerID": "4f1c9a0b77de",
}


class Kept:
    """The objects of one kind, and how often each reason was written."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.reasons: list[str] = []
        self.changed = asyncio.Condition()

    async def create(self, _plural: str, _namespace: str, body: Object) -> Object | None:
        name = body["metadata"]["name"]
        if name in self.objects:
            return None
        self.objects[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
        return self.objects[name]

    async def get(self, _plural: str, _namespace: str, name: str) -> Object | None:
        return self.objects.get(name)

    async def patch_status(
        self, _plural: str, _namespace: str, name: str, status: Mapping[str, Any], *, version: str
    ) -> Object | None:
        one = self.objects[name]
        known = one["metadata"]["resourceVersion"]
        if version != known:
            raise ApiException(status=409, reason="Conflict")
        metadata = {**one["metadata"], "resourceVersion": str(int(known) + 1)}
        self.objects[name] = {**one, "metadata": metadata, "status": {**one.get("status", {}), **status}}
        self.reasons += [one["reason"] for one in status["conditions"] if one["type"] == COMPLETE]
        async with self.changed:
            self.changed.notify_all()
        return self.objects[name]

    async def until(self, *reasons: str) -> None:
        """These were written, in this order."""

        def were() -> bool:
            written = iter(self.reasons)
            return all(reason in written for reason in reasons)

        async with self.changed:
            await self.changed.wait_for(were)


def begun(kept: Kept, coverage: Coverage, waits: Callable[[str], None] = lambda _: None) -> asyncio.Task[Outcome]:
    """An operator at work on the TraceSession."""
    work = SessionWork(
        cast("Cluster", kept),
        Operations(coverage.channels, patience_s=60),
        lambda: datetime.now(UTC),
        node_patience_s=60,
    )
    return asyncio.create_task(work.run(REQUEST, PLACE, lambda *_: None, waits))


async def attempts(coverage: Coverage) -> set[str]:
    """The request_ids of what was begun for it."""
    return {one.request_id for one in await coverage.operations()} & {"r1.p1", *(f"r1.p1.{n}" for n in range(2, 100))}


async def test_a_pod_that_did_not_get_its_node_in_time_is_begun_anew_also_by_the_next_operator(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    kept = Kept()
    async with limited(mesh_config, etcd, tmp_path, "--coverage-patience-s", "1") as coverage:
        other = await coverage.begin(pids=(11,))
        await coverage.until(other.name, "RECORDING")
        controller.processes = {12: "redis-server"}
        first = begun(kept, coverage)
        await kept.until("Waiting", "QuotaInUse", "Waiting", "QuotaInUse")
        first.cancel()
        second = begun(kept, coverage)
        controller.go_on.set()
        outcome = await second
        recorded = result_of(await coverage.wait(other.name)).sessions
        assert outcome.ok, outcome
        assert {"r1.p1", "r1.p1.2", "r1.p1.3"} <= await attempts(coverage)
    # Only the last one recorded.
    assert list(controller.sessions) == [*recorded, *outcome.recordings]


@pytest.mark.usefixtures("decoder")
async def test_a_pod_whose_process_others_record_is_begun_anew(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    kept, node = Kept(), RecordedByOthers("n1")  # type: ignore[abstract]
    async with (
        controller_serving(mesh_config, node),
        limited(mesh_config, etcd, tmp_path, "--coverage-patience-s", "1") as coverage,
    ):
        work = begun(kept, coverage)
        await kept.until("AlreadyTraced")
        node.free.set()
        outcome = await work
    assert outcome.ok and list(outcome.recordings) == list(node.sessions)


async def test_what_a_decode_waits_for_is_in_the_status_until_it_goes_on(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    kept, told = Kept(), list[str]()
    why = decoder.waiting = "the Dask scheduler cannot be reached (since 2026-11-21 10:00:00 UTC): start it"
    decoder.go_on.clear()

    def status() -> Object:
        found: Object = kept.objects.get(PLACE["name"], {}).get("status", {})
        return found

    async with limited(mesh_config, etcd, tmp_path) as coverage:
        work = begun(kept, coverage, told.append)
        async with kept.changed:
            await kept.changed.wait_for(lambda: status().get("waiting"))
        (condition,) = status()["conditions"]
        assert (status()["stage"], status()["waiting"]) == ("DECODING", why)
        assert condition["message"] == f"1 of 3 segments; waits: {why}"
        assert told[-1] == why
        decoder.go_on.set()
        outcome = await work
    assert outcome.ok, outcome
    # Null: it is taken out of the status.
    assert (status()["stage"], status()["waiting"], told[-1]) == ("DONE", None, "")
