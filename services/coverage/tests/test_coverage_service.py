"""From a wish to its result: planned, recorded, stored, decoded."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.coverage.domain.rates import Observation
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.wire import wish_of
from permille.mesh.config import MeshConfig
from permille.mesh.errors import InvalidArgument
from permille.mesh.etcd import Etcd

from .coverage_process import Coverage, known_as_light, result_of, wish
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder


async def test_a_controller_is_told_of_which_group_the_processes_are(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    for target in ({"cgroup": "/web.slice"}, {"pids": (13,)}):
        result_of(await coverage.wait((await coverage.begin(**target)).name))
    assert controller.groups == [controller_pb2.Group(cgroup="/web.slice"), controller_pb2.Group()]


async def test_a_target_is_recorded_stored_and_decoded(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    decoder.go_on.clear()
    operation = await coverage.begin("r1", pids=(13,))
    assert (await coverage.until(operation.name, "RECORDING")).progress.total == 100
    controller.go_on.set()
    decoding = await coverage.until(operation.name, "DECODING")
    assert not decoding.done
    decoder.go_on.set()
    result = result_of(await coverage.wait(operation.name))
    (session,) = controller.sessions.values()
    assert list(result.sessions) == [session.name]
    assert decoder.decoded == [session.name]
    assert (session.purpose, session.period_ms, list(session.pids)) == ("ON_DEMAND", 100, [13])
    assert [list(node.pids) for node in result.plan.nodes] == [[13]]


async def test_all_processes_of_a_name_are_recorded_together(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    operation = await coverage.begin(name="redis-server")
    assert [list(node.pids) for node in result_of(await coverage.wait(operation.name)).plan.nodes] == [[11, 12]]


async def test_a_controller_is_told_how_many_processes_a_session_had_no_place_for(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.processes = dict.fromkeys(range(1001, 1101), "worker")
    controller.go_on.set()
    operation = await coverage.wait((await coverage.begin(name="worker")).name)
    (session,) = result_of(operation).plan.nodes
    assert (len(session.pids), session.left_out, controller.left_out) == (64, 36, [36])


async def test_a_profile_is_spread_over_the_zones_that_controllers_tell_or_the_settings_do(
    coverage: Coverage, mesh_config: MeshConfig, etcd: Etcd, tmp_path: Path
) -> None:
    told = Coverage(mesh_config, etcd, tmp_path / "told.log", "--coverage-zones", '{"n2": "west", "n3": "east"}')
    sample = coverage_pb2.PlanCoverageRequest(
        coverage=coverage_pb2.CoverageRequest(
            target=coverage_pb2.Target(process_name="gzip"), purpose=coverage_pb2.PURPOSE_PROFILING, priority=20
        )
    )

    async def recorded(service: Coverage) -> list[tuple[str, str]]:
        made = (await service._call("PlanCoverage", sample, coverage_pb2.PlanCoverageResponse)).plan
        return [(choice.node, choice.zone) for choice in made.choices if choice.chosen]

    async with AsyncExitStack() as nodes:
        for node, zone in (("n1", "east"), ("n2", "east"), ("n3", "west")):
            controller = Controller(node, zone)  # type: ignore[abstract]
            await nodes.enter_async_context(controller_serving(mesh_config, controller))
        assert await recorded(coverage) == [("nodes/n1", "east"), ("nodes/n3", "west")]
        await coverage.stop()
        await told.start()
        assert await recorded(told) == [("nodes/n1", "east"), ("nodes/n2", "west")]
        await told.stop()
        await told.channels.close()


async def test_of_nodes_with_different_back_ends_each_is_planned_by_what_its_own_wrote(
    coverage: Coverage, controller: Controller, mesh_config: MeshConfig, etcd: Etcd
) -> None:
    another = Controller("n2")  # type: ignore[abstract]
    another.backend = controller_pb2.BACKEND_KMOD
    for backend, written in (("vpt", 2_000_000), ("kmod", 100_000_000)):
        await RateStore(etcd).learn(backend, "gzip", Observation(1, 1000, written, 0, 600))
    async with controller_serving(mesh_config, another):
        planned = await coverage.plan(name="gzip")
    told = {session.node: (session.expected_bytes_per_second, session.heavy) for session in planned.nodes}
    assert told == {"nodes/n1": (2e6, False), "nodes/n2": (100e6, True)}


async def test_what_an_earlier_release_learnt_counts_each_function_as_a_block_and_what_a_later_one_learnt_is_left(
    coverage: Coverage, controller: Controller, etcd: Etcd
) -> None:
    await RateStore(etcd).learn("vpt", "gzip", Observation(1, 1000, 2_000_000, 0, 600, blocks=7))
    ((key, value),) = [(kv.key, json.loads(kv.value)) for kv in await etcd.prefix("/permille/v1/coverage/rates/")]

    earlier = {name: known for name, known in value.items() if name != "blocks"} | {"functions": 7}
    told = []
    for known in (value, earlier, value | {"edges": 9}):
        await etcd.put(key, json.dumps(known).encode())
        (node,) = (await coverage.plan(name="gzip", period_ms=0)).nodes
        told.append([str(term) for term in node.period_terms])
    assert told[0] == told[1] == told[2]
    assert "7 blocks seen" in "".join(told[0])


async def test_a_plan_does_nothing_and_learns_from_what_was_done(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    first = await coverage.plan(pids=(13,))
    assert (first.measured_sessions, controller.starts) == (0, 0)
    assert first.expected_bytes > 0
    operation = await coverage.begin(pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    controller.go_on.set()
    await coverage.wait(operation.name)
    assert (await coverage.plan(pids=(13,))).measured_sessions == 1


async def test_fifty_starts_at_once_all_come_to_their_end(
    coverage: Coverage, controller: Controller, decoder: Decoder, etcd: Etcd
) -> None:
    await known_as_light(etcd, "worker")
    controller.processes = dict.fromkeys(range(1000, 1050), "worker")
    controller.raw_bytes = 1 << 10
    controller.go_on.set()
    begun = await asyncio.gather(*(coverage.begin(f"r{pid}", pids=(pid,)) for pid in controller.processes))
    results = [result_of(operation) for operation in await asyncio.gather(*(coverage.wait(o.name) for o in begun))]
    assert len({session for result in results for session in result.sessions}) == 50
    assert (controller.starts, len(decoder.decoded)) == (50, 50)


async def test_values_that_the_api_does_not_have_are_refused_as_arguments(
    coverage: Coverage, controller: Controller
) -> None:
    elsewhere = wish(pids=(13,))
    elsewhere.backend = 99  # type: ignore[assignment]
    plan = coverage_pb2.PlanCoverageRequest(coverage=elsewhere)
    with pytest.raises(InvalidArgument, match="backend 99 is unknown") as refused:
        await coverage._call("PlanCoverage", plan, coverage_pb2.PlanCoverageResponse)
    assert (refused.value.reason, "KMOD" in refused.value.help) == ("BACKEND_UNKNOWN", True)

    diff = coverage_pb2.DiffCoverageRequest(measure=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="measure 7 is unknown") as refused:
        await coverage._call("DiffCoverage", diff, coverage_pb2.DiffCoverageResponse)
    assert refused.value.reason == "MEASURE_UNKNOWN"

    name = (await coverage.begin(pids=(13,))).name
    for seconds, nanos in ((1 << 62, 0), (-5, -7), (5, -7), (5, 1_000_000_000)):
        newer_than = Timestamp(seconds=seconds, nanos=nanos)
        waiting = operation_pb2.WaitOperationRequest(name=name, timeout_ms=100, newer_than=newer_than)
        with pytest.raises(InvalidArgument, match="newer_than is no time") as refused:
            await coverage._call("WaitOperation", waiting, operation_pb2.WaitOperationResponse)
        assert refused.value.reason == "NEWER_THAN"


def test_a_budget_without_room_for_a_recording_is_refused_before_it_begins() -> None:
    wanted = wish(pids=(11,))
    wanted.budget_bytes = 1 << 20
    wish_of(wanted)
    wanted.budget_bytes -= 1
    with pytest.raises(InvalidArgument, match="a budget of 1,048,575 bytes") as refused:
        wish_of(wanted)
    assert refused.value.reason == "BUDGET_TOO_SMALL"


def test_pids_and_a_name_are_two_targets() -> None:
    wanted = wish(pids=(11,))
    wanted.target.process_name = "gzip"
    with pytest.raises(InvalidArgument, match="named in several ways"):
        wish_of(wanted)


@pytest.mark.parametrize("field", ["cause", "namespace"])
def test_a_name_that_is_kept_has_a_length(field: str) -> None:
    wanted = wish(pids=(11,))
    setattr(wanted, field, "x" * 128)
    wish_of(wanted)
    setattr(wanted, field, "x" * 129)
    with pytest.raises(InvalidArgument, match=f"the {field} has 129 characters") as refused:
        wish_of(wanted)
    assert refused.value.reason == f"{field.upper()}_TOO_LONG"


@pytest.mark.parametrize("field", ["node", "process_name", "cgroup", "container_id", "pod", "selector"])
def test_a_target_has_no_more_text_than_a_path_may_have(field: str) -> None:
    wanted = coverage_pb2.CoverageRequest()
    setattr(wanted.target, field, "nodes/".ljust(4097, "x"))
    with pytest.raises(InvalidArgument, match="has 4097 characters"):
        wish_of(wanted)
