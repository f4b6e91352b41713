"""A node has one session at a time that writes much."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Cancelled, ResourceExhausted
from permille.mesh.etcd import Etcd
from permille.mesh.operations import operation_error

from .coverage_process import Coverage, known_as_light, limited, profile_of, result_of, start_profile
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder, with_rare


async def test_heavy_sessions_of_one_node_are_recorded_one_after_the_other_whichever_replica_began_them(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 26), "worker")
    controller.go_on.set()
    async with limited(mesh_config, etcd, tmp_path) as coverage:
        begun = await asyncio.gather(*(coverage.begin(f"r{pid}", pids=(pid,)) for pid in controller.processes))
        for operation in begun:
            result_of(await coverage.wait(operation.name))
    assert (controller.starts, controller.most_at_once) == (6, 1)


async def test_who_was_named_waits_for_the_node_and_a_profile_is_told_to_come_again(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.go_on.clear()
    first = await coverage.begin(pids=(11,))
    await coverage.until(first.name, "RECORDING")
    waiting, cancelled = await coverage.begin(pids=(12,)), await coverage.begin(pids=(13,))
    for operation in (waiting, cancelled):
        assert not (await coverage.until(operation.name, "WAITING")).done
    (choice,) = (await coverage.plan(pids=(12,))).choices
    assert choice.reason == "the target means it; it begins when the heavy session of n1 has ended"
    await coverage.cancel(cancelled.name)
    assert isinstance(operation_error(await coverage.wait(cancelled.name)), Cancelled)
    profile = coverage_pb2.StartCoverageRequest(coverage=profile_of("gzip", limit=0))
    with pytest.raises(ResourceExhausted, match="n1 has a heavy session of another request") as failure:
        await coverage._call("StartCoverage", profile, coverage_pb2.StartCoverageResponse)
    assert (failure.value.reason, failure.value.retry_after_s) == ("QUOTA_IN_USE", 5.0)
    # The node is free when the recordings have ended, though they are still being decoded.
    controller.go_on.set()
    await coverage.until(waiting.name, "DECODING")
    operation = (await coverage._call("StartCoverage", profile, coverage_pb2.StartCoverageResponse)).operation
    decoder.go_on.set()
    for one in (first, waiting, operation):
        result_of(await coverage.wait(one.name))
    assert (controller.starts, controller.most_at_once) == (3, 1)


async def test_a_queue_that_moves_is_waited_for_longer_than_one_that_stands(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 24), "worker")
    controller.period_s = 3.0
    controller.go_on.set()
    # The last one waits for three recordings of three seconds.
    async with limited(mesh_config, etcd, tmp_path, "--coverage-patience-s", "7") as coverage:
        begun = [await coverage.begin(pids=(pid,)) for pid in controller.processes]
        for operation in begun:
            result_of(await coverage.wait(operation.name))
    assert (controller.starts, controller.most_at_once) == (4, 1)


async def test_a_node_that_does_not_get_free_is_given_up(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    async with limited(mesh_config, etcd, tmp_path, "--coverage-patience-s", "1") as coverage:
        first = await coverage.begin(pids=(11,))
        await coverage.until(first.name, "RECORDING")
        error = operation_error(await coverage.wait((await coverage.begin(pids=(12,))).name))
        assert error is not None and (error.reason, error.metadata) == ("QUOTA_IN_USE", {"node": "nodes/n1"})
        controller.go_on.set()
        result_of(await coverage.wait(first.name))


async def test_a_killed_coverage_keeps_the_node_to_its_recording(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    first = await coverage.begin(pids=(11,))
    await coverage.until(first.name, "RECORDING")
    second = await coverage.begin(pids=(12,))
    await coverage.kill()
    await coverage.start()
    assert not (await coverage.until(second.name, "WAITING")).done
    controller.go_on.set()
    for operation in (first, second):
        result_of(await coverage.wait(operation.name))
    assert (controller.starts, controller.most_at_once) == (2, 1)


async def test_a_round_that_is_passed_over_has_no_node(
    mesh_config: MeshConfig, etcd: Etcd, coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    await known_as_light(etcd, "worker", backend="kmod")
    controller.backend = controller_pb2.BACKEND_KMOD
    controller.processes = {100: "worker", 102: "worker"}
    controller.go_on.set()
    heavy = Controller("n2")  # type: ignore[abstract]
    heavy.processes = {101: "worker", 13: "gzip"}
    heavy.ends_after_plan = 101

    def ran(session: int) -> dict[str, Iterable[int]]:
        # The third round goes on recording.
        controller.go_on.clear()
        return with_rare(session)

    decoder.ran = ran
    async with controller_serving(mesh_config, heavy):
        profile = await start_profile(coverage, profile_of("worker", limit=3, min_gain=1e-9))
        while controller.starts < 2:
            await asyncio.sleep(0.02)
        heavy.go_on.set()
        other = await coverage.begin(pids=(13,), node="nodes/n2")
        assert (await coverage.until(other.name, "WAITING")).done
        controller.go_on.set()
        rounds = result_of(await coverage.wait(profile.name)).rounds
    assert [done.reason.startswith("not recorded") for done in rounds] == [False, True, False]
