"""Whoever dies: an operation goes on where it was, and a repeated start finds it."""

from __future__ import annotations

import asyncio

import pytest
from permille.mesh.config import MeshConfig
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import InvalidArgument, Unavailable

from .coverage_process import Coverage, result_of
from .served_controller import Controller, controller_serving
from .served_decoder import Decoder, decoder_serving


async def test_a_repeated_start_finds_its_operation_even_when_the_target_is_gone(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    operations = await asyncio.gather(*(coverage.begin("same", pids=(13,)) for _ in range(10)))
    assert len({operation.name for operation in operations}) == 1
    await coverage.wait(operations[0].name)
    del controller.processes[13]
    assert (await coverage.begin("same", pids=(13,))).name == operations[0].name
    assert (controller.starts, len(decoder.decoded)) == (1, 1)
    with pytest.raises(InvalidArgument, match="used before for another request"):
        await coverage.begin("same", pids=(11,))


async def test_a_start_that_is_overtaken_by_its_repetition_finds_its_operation(
    coverage: Coverage, controller: Controller, decoder: Decoder
) -> None:
    controller.go_on.set()
    controller.held_plan = 1
    slow = asyncio.create_task(coverage.begin("same", pids=(13,)))
    while controller.plans == 0:
        await asyncio.sleep(0.01)
    quick = await coverage.begin("same", pids=(13,))
    await coverage.wait(quick.name)
    del controller.processes[13]
    controller.plan_on.set()
    assert (await slow).name == quick.name
    assert (controller.starts, len(decoder.decoded)) == (1, 1)


@pytest.mark.parametrize("stage", ["RECORDING", "DECODING"])
async def test_a_killed_coverage_goes_on_where_it_was_and_doubles_nothing(
    coverage: Coverage, controller: Controller, decoder: Decoder, stage: str
) -> None:
    decoder.go_on.clear()
    if stage == "DECODING":
        controller.go_on.set()
    operation = await coverage.begin("r1", pids=(13,))
    assert not (await coverage.until(operation.name, stage)).done
    await coverage.kill()
    controller.go_on.set()
    decoder.go_on.set()
    await coverage.start()
    result = result_of(await coverage.wait(operation.name))
    assert (controller.starts, len(decoder.decoded), len(result.sessions)) == (1, 1, 1)


async def test_a_second_replica_takes_over_at_once_from_one_that_drains(
    coverage: Coverage, controller: Controller, decoder: Decoder, another: Coverage
) -> None:
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    await another.start()
    assert await coverage.stop() == 0
    controller.go_on.set()
    result_of(await another.wait(operation.name))
    assert controller.starts == 1


async def test_a_controller_that_is_away_for_a_while_is_waited_for(
    coverage: Coverage, decoder: Decoder, mesh_config: MeshConfig
) -> None:
    node = Controller("n1")  # type: ignore[abstract]
    async with controller_serving(mesh_config, node):
        operation = await coverage.begin("r1", pids=(13,))
        await coverage.until(operation.name, "RECORDING")
    node.go_on.set()
    async with controller_serving(mesh_config, node):
        result_of(await coverage.wait(operation.name))
    assert node.starts == 1


async def test_a_decoder_that_dies_is_waited_for_and_decodes_once(
    coverage: Coverage, controller: Controller, mesh_config: MeshConfig
) -> None:
    controller.go_on.set()
    first, second = Decoder(), Decoder()
    first.go_on.clear()
    async with decoder_serving(mesh_config, first):
        operation = await coverage.begin("r1", pids=(13,))
        await coverage.until(operation.name, "DECODING")
        while not first.decoded:
            await asyncio.sleep(0.02)
    async with decoder_serving(mesh_config, second):
        result_of(await coverage.wait(operation.name))
    assert first.decoded == second.decoded
    assert len(second.decoded) == 1


async def test_an_etcd_that_dies_loses_no_operation(
    coverage: Coverage, controller: Controller, decoder: Decoder, etcd_server: EmbeddedEtcd
) -> None:
    operation = await coverage.begin("r1", pids=(13,))
    await coverage.until(operation.name, "RECORDING")
    assert etcd_server.process is not None
    etcd_server.process.kill()
    await etcd_server.wait()
    with pytest.raises(Unavailable) as caught:
        await coverage.begin("r2", pids=(11,))
    assert caught.value.reason == "ETCD_UNAVAILABLE"
    controller.go_on.set()
    await asyncio.sleep(3)
    await etcd_server.start()
    result_of(await coverage.wait(operation.name))
    assert (controller.starts, len(decoder.decoded)) == (1, 1)
