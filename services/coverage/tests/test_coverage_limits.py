"""What callers and namespaces may take and see, over all replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.mesh import certs
from permille.mesh.auth import Role
from permille.mesh.config import MeshConfig
from permille.mesh.errors import Cancelled, PermissionDenied, ResourceExhausted
from permille.mesh.etcd import Etcd
from permille.mesh.operations import operation_error

from .coverage_process import Coverage, known_as_light, limited, result_of
from .served_controller import Controller, controller_serving
from .served_decoder import USUAL, Decoder, decoder_serving

Operation = operation_pb2.Operation


async def test_a_quota_holds_over_all_that_is_unfinished_whichever_replica_began_it(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 28), "worker")
    quotas = ("--coverage-quotas", '{"default": {"cores": 3}}')
    async with limited(mesh_config, etcd, tmp_path, *quotas) as coverage:
        starts = (coverage.begin(f"r{pid}", pids=(pid,)) for pid in controller.processes)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        begun = [answer for answer in answers if isinstance(answer, Operation)]
        refused = [answer for answer in answers if isinstance(answer, ResourceExhausted)]
        assert (len(begun), len(refused)) == (3, 5)
        assert {error.reason for error in refused} == {"QUOTA_IN_USE"}
        assert refused[0].retry_after_s == 5.0
        with pytest.raises(ResourceExhausted, match="of which other requests take 3"):
            await coverage.plan(pids=(20,))
        controller.go_on.set()
        for operation in begun:
            result_of(await coverage.wait(operation.name))
        assert len((await coverage.plan(name="worker")).nodes[0].pids) == 3


async def test_no_invented_namespace_has_more_than_the_cluster(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    await known_as_light(etcd, "worker")
    controller.processes = dict.fromkeys(range(20, 26), "worker")
    async with limited(mesh_config, etcd, tmp_path, "--coverage-cluster-cores", "2") as coverage:
        starts = (coverage.begin(pids=(pid,), namespace=f"made-up-{pid}") for pid in controller.processes)
        answers = await asyncio.gather(*starts, return_exceptions=True)
        assert sum(isinstance(answer, Operation) for answer in answers) == 2
        refused = [answer for answer in answers if isinstance(answer, ResourceExhausted)]
        assert {error.reason for error in refused} == {"QUOTA_IN_USE"}
        assert "the quota of the cluster is 2 traced cores" in refused[0].message


async def test_a_result_says_how_many_instances_there_was_no_room_for_however_many_there_are(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(20, 60), "worker")
    controller.go_on.set()
    async with limited(mesh_config, etcd, tmp_path, "--coverage-cluster-cores", "3") as coverage:
        operation = await coverage.wait((await coverage.begin(name="worker")).name)
    made = result_of(operation).plan
    assert [len(node.pids) for node in made.nodes] == [3]
    (left_out,) = made.not_planned
    assert (left_out.instances, left_out.reason) == (37, "the quota of the cluster is 3 traced cores")


async def test_a_caller_has_so_many_unfinished_requests_and_a_repetition_is_none(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller, decoder: Decoder
) -> None:
    callers = ("--coverage-callers", '{"127.0.0.1": {"requests": 1}}')
    async with limited(mesh_config, etcd, tmp_path, *callers) as coverage:
        operation = await coverage.begin("r1", pids=(11,))
        assert operation.caller == "127.0.0.1"
        assert (await coverage.begin("r1", pids=(11,))).name == operation.name
        with pytest.raises(ResourceExhausted) as failure:
            await coverage.begin("r2", pids=(12,))
        assert (failure.value.reason, failure.value.metadata["requests"]) == ("CALLER_REQUESTS", "1")
        assert failure.value.retry_after_s
        controller.go_on.set()
        result_of(await coverage.wait(operation.name))
        result_of(await coverage.wait((await coverage.begin("r2", pids=(12,))).name))


async def test_one_call_too_many_is_told_when_to_come_again_and_following_is_not_counted(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path, controller: Controller
) -> None:
    coverage = Coverage(
        mesh_config, etcd, tmp_path / "a.log", "--coverage-callers", '{"default": {"calls_per_minute": 1}}'
    )
    await coverage.start()
    try:
        operation = await coverage.begin(pids=(11,))
        with pytest.raises(ResourceExhausted) as failure:
            # Whoever needs a minute for two calls is not limited.
            while True:
                await coverage.plan(pids=(12,))
        assert failure.value.reason == "CALL_RATE"
        assert failure.value.retry_after_s is not None
        assert 0 < failure.value.retry_after_s <= 60
        for _ in range(3):
            await coverage.until(operation.name, "RECORDING")
        await coverage.cancel(operation.name)
        assert isinstance(operation_error(await coverage.wait(operation.name)), Cancelled)
    finally:
        await coverage.channels.close()
        await coverage.stop()


async def test_with_tls_operators_start_other_systems_end_their_own_and_viewers_look(
    mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    folder = tmp_path / "certs"
    certs.create_authority(folder)
    certs.issue_service(folder, ["coverage", "controller", "decoder"], node="n1")
    for role in (Role.OPERATOR, Role.VIEWER, Role.EXTERNAL):
        certs.issue_user(folder, role.value, roles=[role])

    def secured(name: str) -> MeshConfig:
        files = {"tls_ca": folder / "ca.crt", "tls_cert": folder / f"{name}.crt", "tls_key": folder / f"{name}.key"}
        return mesh_config.model_copy(update=files)

    node, decoder = Controller("n1"), Decoder()  # type: ignore[abstract]
    node.go_on.set()
    callers = ("--coverage-callers", '{"external": {"namespaces": ["shop"]}}')
    service = Coverage(secured("n1"), etcd, tmp_path / "coverage.log", *callers)
    async with controller_serving(secured("n1"), node), decoder_serving(secured("n1"), decoder):
        await service.start()
        operator, viewer, external = (
            Coverage(secured(name), etcd, tmp_path / "no.log") for name in ("operator", "viewer", "external")
        )
        operation = await operator.begin("a-request", pids=(13,))
        result_of(await viewer.wait(operation.name))
        assert (await viewer.plan(pids=(13,))).expected_bytes > 0
        with pytest.raises(PermissionDenied, match="needs the role operator"):
            await viewer.begin(pids=(13,))
        # What is done stays as it is, whoever asks for its end.
        with pytest.raises(PermissionDenied, match="operator started it"):
            await external.cancel(operation.name)
        # It asks for its own namespace, and sees what it has started.
        for refused in (external.begin(pids=(13,)), external.plan(pids=(13,), namespace="bank")):
            with pytest.raises(PermissionDenied, match="only for shop") as denied:
                await refused
            assert denied.value.reason == "NAMESPACE_NOT_ALLOWED"
        # The namespace that it counts against is its word; a pod's is in the pod's name.
        for ask in (external.begin, external.plan):
            with pytest.raises(PermissionDenied, match="bank of the pod bank/ledger-0, only for shop") as denied:
                await ask(pod="bank/ledger-0", namespace="shop")
            assert denied.value.reason == "NAMESPACE_NOT_ALLOWED"
        assert (await external.plan(pod="shop/web-0", namespace="shop")).nodes
        assert (await external.plan(pod="0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", namespace="shop")).nodes
        assert (await viewer.plan(pod="bank/ledger-0")).nodes
        theirs = coverage_pb2.SessionSet(operation=operation.name)
        look_into = coverage_pb2.GetCoverageRequest(of=theirs), coverage_pb2.GetCoverageResponse
        compare = coverage_pb2.DiffCoverageRequest(a=theirs, b=theirs), coverage_pb2.DiffCoverageResponse
        for look in (
            external.wait(operation.name),
            external.until(operation.name, ""),
            external.begin("a-request", pids=(13,)),
            external._call("GetCoverage", *look_into),
            external._call("DiffCoverage", *compare),
        ):
            with pytest.raises(PermissionDenied, match="may not see"):
                await look
        decoder.tables.add(result_of(await viewer.wait(operation.name)).sessions[0], USUAL)
        assert (await viewer._call("GetCoverage", *look_into)).functions_total
        own = await external.begin(pids=(13,), namespace="shop")
        assert own.caller == "external"
        assert [one.name for one in await external.operations()] == [own.name]
        assert [one.name for one in await viewer.operations()] == [own.name, operation.name]
        assert (await external.cancel(own.name)).name == (await operator.cancel(own.name)).name
        assert await service.stop() == 0
    for client in (service, operator, viewer, external):
        await client.channels.close()
