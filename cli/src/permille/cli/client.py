"""A command as a client of the mesh: found through etcd, with errors as `PermilleError`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc
from permille.api.controller.v1 import controller_pb2_grpc
from permille.api.coverage.v1 import coverage_pb2_grpc
from permille.api.decoder.v1 import decoder_pb2_grpc
from permille.mesh import logs
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd, connect
from permille.mesh.interceptor import from_rpc_error

_Result = TypeVar("_Result")
# A service whose lease ran out while its machine stood still registers again within as many seconds.
_ABSENT_S = 3.0


class MeshClient:
    """The services' stubs; each is looked up anew, so that one that was started again is found."""

    def __init__(self, config: MeshConfig, etcd: Etcd, channels: Channels) -> None:
        self.config = config
        self.etcd = etcd
        self.channels = channels

    async def coverage(self) -> coverage_pb2_grpc.CoverageServiceAsyncStub:
        """Raises `Unavailable` when nobody serves."""
        return coverage_pb2_grpc.CoverageServiceStub(await self.channels.to("coverage"))

    async def decoder(self) -> decoder_pb2_grpc.DecoderServiceAsyncStub:
        """Raises `Unavailable` when nobody serves."""
        return decoder_pb2_grpc.DecoderServiceStub(await self.channels.to("decoder"))

    async def controller(self, node: str = "") -> controller_pb2_grpc.ControllerServiceAsyncStub:
        """Of one node; without a name, this machine's. Raises `Unavailable` when it does not serve."""
        return controller_pb2_grpc.ControllerServiceStub(await self.channels.to("controller", node or self.config.node))


async def answer(call: Awaitable[_Result]) -> _Result:
    """The answer of a call. Raises the error that the server raised."""
    try:
        return await call
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


async def parts(stream: AsyncIterable[_Result]) -> AsyncIterator[_Result]:
    """The parts of a streamed answer. Raises the error that the server raised."""
    try:
        async for part in stream:
            yield part
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


@asynccontextmanager
async def mesh_client(config: MeshConfig) -> AsyncIterator[MeshClient]:
    """A client for as long as the block runs. Raises `Unavailable` when no etcd is known."""
    logs.configure("permille", config.node, level="error", style="console")
    etcd = connect(config)
    channels = Channels(config, etcd, absent_s=_ABSENT_S)
    try:
        yield MeshClient(config, etcd, channels)
    finally:
        await channels.close()
        await etcd.close()


def in_mesh(config: MeshConfig, work: Callable[[MeshClient], Awaitable[_Result]]) -> _Result:
    """Runs asynchronous work with a client and returns its result."""

    async def run() -> _Result:
        async with mesh_client(config) as client:
            return await work(client)

    return asyncio.run(run())
