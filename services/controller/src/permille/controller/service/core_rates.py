"""Bytes per second and core of earlier sessions of the same binary: folded by the allocator, kept in etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
from permille.api.allocator.v1 import allocator_pb2 as pb
from permille.api.allocator.v1 import allocator_pb2_grpc as rpc
from permille.controller.domain.binaries import identify
from permille.controller.domain.node_use.core_observations import CoreObservation
from permille.mesh.channels import Channels
from permille.mesh.etcd import Etcd
from permille.mesh.interceptor import from_rpc_error

PREFIX = "/permille/v1/controller/core-rates"
PROC = Path("/proc")


class CoreRates:
    """Rates by back end and binary; every controller of the mesh reads and writes the same ones."""

    def __init__(self, etcd: Etcd, channels: Channels) -> None:
        self._etcd = etcd
        self._channels = channels

    async def of(self, backend: str, binary: str) -> pb.LearnedRate | None:
        """None for a binary that nobody has traced yet. Raises `Unavailable`."""
        kept = await self._etcd.get(key(backend, binary))
        return pb.LearnedRate.FromString(kept.value) if kept else None

    async def learn(self, backend: str, binary: str, session: Sequence[CoreObservation]) -> pb.LearnedRate | None:
        """Adds one finished session; what is known afterwards, unset while no rate was measured.

        Raises `Unavailable`, and what the allocator raises.
        """
        rate: pb.LearnedRate | None = None

        async def after(before: bytes | None) -> bytes | None:
            nonlocal rate
            rate = await self._folded(pb.LearnedRate.FromString(before) if before else None, session)
            return rate.SerializeToString(deterministic=True) if rate is not None else None

        await self._etcd.replace(key(backend, binary), after)
        return rate

    async def _folded(self, known: pb.LearnedRate | None, session: Sequence[CoreObservation]) -> pb.LearnedRate | None:
        cores = [
            pb.CoreObservation(core=one.core, run_ms=one.run_ms, size_bytes=one.size_bytes, full=one.full)
            for one in session
        ]
        stub = rpc.AllocatorServiceStub(await self._channels.to("allocator"))
        try:
            answer = await stub.LearnRate(pb.LearnRateRequest(known=known, cores=cores))
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return answer.learned if answer.HasField("learned") else None


async def binary_of(pid: int, proc: Path = PROC) -> str:
    """The name of what a process executes: its build id, or a digest of the file; "" when it cannot be read."""
    try:
        return (await asyncio.to_thread(identify, proc / str(pid) / "exe")).key
    except OSError:
        return ""


def key(backend: str, binary: str) -> str:
    return f"{PREFIX}/{backend}/{binary}"
