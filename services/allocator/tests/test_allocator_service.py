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
