"""The process of the decoder service."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

from permille.api.decoder.v1 import decoder_pb2, decoder_pb2_grpc
from permille.decoder.domain.binary_repository import DEBUG_FOLDER, BinaryRepository
from permille.decoder.domain.function_categories import read_categories
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.query import QueryEngine
from permille.decoder.domain.query_limits import QueryLimits
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.decoder.domain.session_export import SessionExports
from permille.decoder.service.binary_upload import BinaryUpload
from permille.decoder.service.decode_work import DecodeWork
from permille.decoder.service.decoder_service import ACCESS, DecoderService
from permille.decoder.service.leader_sweeps import sweep_while_leading
from permille.decoder.service.scratch_folder import ScratchFolder
from permille.decoder.service.session_deletion import SessionDeletion
from permille.decoder.service.session_expiry import SessionExpiry
from permille.decoder.service.session_upload import SessionUpload
from permille.decoder.service.store_tidying import StoreTidying
from permille.mesh.config import MeshConfig
from permille.mesh.election import Election
from permille.mesh.operation_runner import OperationRunner
from permille.mesh.operations import OperationStore
from permille.mesh.server import ServerContext, run
from permille.mesh.tables import Tables
from pydantic import BaseModel, ConfigDict, Field


class DecoderSettings(BaseModel):
    """The table `[decoder]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    executor: Literal["local", "dask"] = Field(
        default="local", description="Who decodes: processes here, or a cluster."
    )
    workers: int = Field(default=0, ge=0, le=1024, description="Processes of the local executor; 0: one a core.")
    dask_scheduler: str = Field(default="", description="tcp://127.0.0.1:PORT, or tls://HOST:PORT of a Dask cluster.")
    dask_tls_ca: Path | None = Field(default=None, description="Authority of that cluster alone; for tls://.")
    dask_tls_cert: Path | None = Field(default=None, description="A certificate of that authority.")
    dask_tls_key: Path | None = Field(default=None, description="Its key.")
    decodes_at_once: int = Field(default=2, ge=1, le=64, description="Sessions that are decoded at the same time.")
    query_memory_mib: int = Field(default=1024, ge=16, le=1 << 30, description="Memory of one query.")
    query_timeout_s: float = Field(
        default=60.0, gt=0, le=3600, description="How long one query may take, its client's reading included."
    )
    queries_at_once: int = Field(default=4, ge=1, le=256, description="Further queries wait, query_timeout_s at most.")
    exports_at_once: int = Field(default=4, ge=1, le=256, description="Further exports wait.")
    debug_folder: Path = Field(default=DEBUG_FOLDER, description="Where separate debug files are on this machine.")
    categories: Path | None = Field(
        default=None, description="A table of function categories: its rules come after those built in."
    )
    inlined: bool = Field(
        default=False,
        description="Tell what was inlined into each function: the table `inlined`. Reads debug information.",
    )
    store_patience_s: float = Field(
        default=120.0, gt=0, description="How long a decode waits for a store that is away."
    )
    retention_s: int = Field(
        default=0,
        ge=0,
        description="So long after they were made and decoded recordings of which nothing else was said go; 0: never.",
    )
    expiry_interval_s: float = Field(
        default=3600.0,
        gt=0,
        description="How often it is looked which recordings have outlived their retention, and which files are left.",
    )


class DecoderConfig(MeshConfig):
    """The configuration of this process."""

    decoder: DecoderSettings = DecoderSettings()


async def setup(context: ServerContext) -> None:
    """Puts the service together."""
    config = context.config
    settings = config.decoder if isinstance(config, DecoderConfig) else DecoderSettings()
    cores = len(os.sched_getaffinity(0))
    scratch = ScratchFolder(config.state_dir / "decoder" / "scratch", context.instance)
    tables = Tables(context.store)
    binaries = BinaryRepository(
        context.store, config.state_dir / "decoder" / "binaries", debug_folder=settings.debug_folder
    )
    processes = settings.workers or cores
    pool = _pool(settings, processes)
    decoder = SessionDecoder(
        context.store,
        tables,
        pool,
        folder=scratch.path,
        workers_folder="" if settings.executor == "dask" else str(config.state_dir / "decoder"),
        debug_folder=settings.debug_folder,
        categories=read_categories(settings.categories),
        inlined=settings.inlined,
        threads=1 if settings.executor == "dask" else min(processes, cores),
    )
    work = DecodeWork(decoder, most_at_once=settings.decodes_at_once, patience_s=settings.store_patience_s)
    runner = OperationRunner(
        context.operations, decoder_pb2.DecodeRequest, work, priority=lambda request: request.priority
    )
    limits = QueryLimits(settings.query_memory_mib, settings.query_timeout_s, cores, settings.queries_at_once)
    deletion = SessionDeletion(context.store, tables, context.etcd, context.operations)
    requests = OperationStore(context.etcd, "coverage", lease=context.lease)
    expiry = SessionExpiry(context.store, context.etcd, deletion, requests, retention_s=settings.retention_s)
    context.add(
        decoder_pb2_grpc.add_DecoderServiceServicer_to_server,
        DecoderService(
            context.operations,
            runner,
            queries=QueryEngine(tables, limits),
            exports=SessionExports(tables, scratch.path, at_once=settings.exports_at_once),
            uploads=BinaryUpload(binaries, scratch.path),
            sessions=SessionUpload(context.store, context.etcd),
            deletion=deletion,
        ),
        decoder_pb2.DESCRIPTOR.services_by_name["DecoderService"],
        ACCESS,
    )
    context.spawn(runner.run())
    context.spawn(pool.watch())
    election = Election(context.etcd, context.lease, "expiry", context.instance)
    tidying = StoreTidying(context.store, tables, context.operations)
    context.spawn(sweep_while_leading(election, expiry.sweep, tidying.sweep, every_s=settings.expiry_interval_s))

    async def close() -> None:
        pool.close()
        await asyncio.to_thread(scratch.close)

    context.on_shutdown(close)


def _pool(settings: DecoderSettings, processes: int) -> SegmentPool[PartTask, bytes]:
    if settings.executor == "local":
        return SegmentPool(decode_part, LocalWorkers(processes))
    # Loading Dask takes a while.
    from permille.decoder.service.dask_workers import ClusterTls, dask_workers  # noqa: PLC0415

    tls = ClusterTls(settings.dask_tls_ca, settings.dask_tls_cert, settings.dask_tls_key)
    return SegmentPool(decode_part, dask_workers(settings.dask_scheduler, tls))


def main() -> None:
    """The command `permille-decoder`."""
    raise SystemExit(run("decoder", DecoderConfig, setup))


if __name__ == "__main__":
    main()
