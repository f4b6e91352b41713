"""The allocator as a process of the mesh, asked over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from permille.allocator.main import setup
from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.api.allocator.v1 import allocator_pb2_grpc as rpc
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.discovery import wait_for
from permille.mesh.errors import InvalidArgument, PermilleError, ResourceExhausted
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error
from permille.mesh.server import serve

MIB = 1 << 20


@pytest.fixture
async def allocator(mesh_config: MeshConfig, etcd: Etcd) -> AsyncIterator[rpc.AllocatorServiceAsyncStub]:
    server = asyncio.create_task(serve("allocator", mesh_config, setup))
    await wait_for(etcd, "allocator", timeout_s=60)
    channels = Channels(mesh_config, etcd)
    yield rpc.AllocatorServiceStub(await channels.to("allocator"))
    await channels.close()
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)


def request(**changes: object) -> pb.PlanBuffersRequest:
    wish = pb.PlanBuffersRequest(
        kind=pb.UNIT_KIND_THREAD,
        usages=[pb.Usage(unit=10, share=0.75), pb.Usage(unit=11, share=0.25)],
        budget_bytes=64 * MIB,
        period_ms=5000,
        reserve=4,
    )
    wish.MergeFrom(pb.PlanBuffersRequest(**changes))  # type: ignore[arg-type]
    return wish


async def test_a_plan_over_the_wire(allocator: rpc.AllocatorServiceAsyncStub) -> None:
    plan = await allocator.PlanBuffers(request())
    sizes = {buffer.unit: buffer.size_bytes for buffer in plan.buffers}
    assert sizes[10] > 2 * sizes[11]
    assert plan.reserve_buffer_bytes == 4 * MIB
    assert plan.total_bytes == sum(sizes.values()) + 4 * plan.reserve_buffer_bytes <= 64 * MIB
    assert plan.expected_bytes > 0


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"reserve": 100_000}, ResourceExhausted, "BUDGET_TOO_SMALL"),
        ({"usages": [pb.Usage(unit=10, share=0.1)]}, InvalidArgument, "INVALID_BUFFER_WISH"),
        ({"period_ms": -1}, InvalidArgument, "INVALID_BUFFER_WISH"),
    ],
)
async def test_an_impossible_wish_is_refused_with_the_way_out(
    allocator: rpc.AllocatorServiceAsyncStub, change: dict[str, object], error: type[PermilleError], reason: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await allocator.PlanBuffers(request(**change))
    refused = from_rpc_error(caught.value)
    assert isinstance(refused, error)
    assert refused.reason == reason
    assert refused.help


async def test_a_kind_has_to_be_named(allocator: rpc.AllocatorServiceAsyncStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await allocator.PlanBuffers(pb.PlanBuffersRequest(budget_bytes=1))
    assert from_rpc_error(caught.value).metadata["field"] == "kind"


def core_request(**changes: object) -> pb.PlanBuffersRequest:
    target = pb.CoreTarget(
        cores=[
            pb.CoreUse(core=0, others_share=0.1, target_shares=[0.5, 0.6], current=True),
            pb.CoreUse(core=1, others_share=0.1, target_shares=[0.1, 0.0]),
            pb.CoreUse(core=2, others_share=0.9, target_shares=[0.0, 0.0]),
        ],
        online_cores=3,
    )
    target.MergeFrom(pb.CoreTarget(**changes))  # type: ignore[arg-type]
    return pb.PlanBuffersRequest(kind=pb.UNIT_KIND_CORE, core_target=target, period_ms=500)


async def test_a_plan_for_cores_says_why(allocator: rpc.AllocatorServiceAsyncStub) -> None:
    plan = await allocator.PlanBuffers(core_request())
    sizes = {buffer.unit: buffer.size_bytes for buffer in plan.buffers}
    assert plan.binding == pb.BINDING_CPU_SHARE
    assert sizes[0] >= sizes[1] >= 4 * MIB
    assert plan.total_bytes == sum(sizes.values()) <= plan.budget_bytes == 500 * MIB
    assert all(buffer.reason for buffer in plan.buffers)
    assert {0, 1, 2} == {*sizes, *(core.core for core in plan.left_out)}


async def test_a_cpu_set_over_the_wire_gets_equal_buffers(allocator: rpc.AllocatorServiceAsyncStub) -> None:
    plan = await allocator.PlanBuffers(core_request(online_cores=8))
    assert plan.binding == pb.BINDING_CPU_SET
    assert len({buffer.size_bytes for buffer in plan.buffers}) == 1
    assert len(plan.buffers) == 3


async def test_what_a_session_taught_sizes_the_next_plan(allocator: rpc.AllocatorServiceAsyncStub) -> None:
    session = pb.LearnRateRequest(cores=[pb.CoreObservation(core=0, run_ms=250, size_bytes=5 * MIB)])
    learned = (await allocator.LearnRate(session)).learned
    assert learned.sessions == 1
    assert learned.bytes_per_busy_second == 20 * MIB
    before, after = [await allocator.PlanBuffers(core_request(**known)) for known in ({}, {"learned": learned})]
    assert after.total_bytes < before.total_bytes
    assert not (await allocator.LearnRate(pb.LearnRateRequest())).HasField("learned")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cores": [pb.CoreUse(core=0)]}, "cores"),
        ({"binding": 9}, "binding"),
        ({"memory_pressure": 101.0}, "pressure"),
        ({"learned": pb.LearnedRate(bytes_per_busy_second=-1, sessions=1)}, "learned.bytes_per_busy_second"),
    ],
)
async def test_a_core_target_without_a_meaning_is_refused_by_name(
    allocator: rpc.AllocatorServiceAsyncStub, change: dict[str, object], field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await allocator.PlanBuffers(core_request(**change))
    assert from_rpc_error(caught.value).metadata["field"] == field
