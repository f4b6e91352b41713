"""What it costs beside ptcore's own work to decode a session: from its segments in the store to committed tables.

A real redis-server is recorded once. Its session is decoded as it is, and cut into 10,000 small segments, by ptcore
alone (one thread, everything in memory) and by the whole decoder, in turn. The store is in memory, because it is not
disks that are compared. Speeds are by the clock; what is told "by CPU time" counts that of the decoder and of all its
workers, whatever else the machine does. PERMILLE_BENCH_SESSION=STORE_URL,SESSION_ID takes a session that is there
already.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
from figures import Figure, publish, ratios
from permille.decoder.domain.archive import SessionArchive
from permille.decoder.domain.binary_repository import DEBUG_FOLDER, BinaryRepository
from permille.decoder.domain.decode_plan import planned
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_context import SessionContext, open_context
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.decoder.domain.workers import Workers
from permille.decoder.service.dask_workers import DaskWorkers
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.tables import Tables
from scheduler.dask_cluster import dask_cluster
from scheduler.small_segments import cut, stream_of
from workload import load, mesh, redis, traced

ROUNDS = 3
SMALL = 10_000
MIB = 1 << 20


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of CPU in this process and all its children."""

    wall: float
    cpu: float


Measure = Callable[[], Awaitable[Spent]]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="permille-bench-", dir="/dev/shm") as folder, ExitStack() as stack:
        url, session_id = recorded(folder)
        cores = len(os.sched_getaffinity(0))
        address = stack.enter_context(dask_cluster(cores, folder))
        publish("scheduler", asyncio.run(measured(Bench(url, session_id, Path(folder)), cores, address)))


def recorded(folder: str) -> tuple[str, str]:
    known = os.environ.get("PERMILLE_BENCH_SESSION", "")
    if known:
        url, _, session_id = known.partition(",")
        return url, session_id
    os.environ["PERMILLE_STATE_DIR"] = folder
    with mesh(), redis() as (server, port), load(port):
        return (Path(folder) / "store").as_uri(), traced(server.pid, "500ms")


class Bench:
    """One store with the session as it was recorded and the one of small segments."""

    def __init__(self, url: str, session_id: str, folder: Path) -> None:
        self.store: ObjectStore = open_store(url)
        self.whole, self.small = session_id, f"{session_id}-small"
        self._folder = folder / "decoder"
        self._folder.mkdir(exist_ok=True)
        self._decodes = 0

    async def alone(self, session_id: str) -> tuple[Measure, int, int]:
        """ptcore on the session's segments, in memory; raw bytes, segments."""
        archive = await SessionArchive.open(self.store, session_id)
        context = await open_context(archive, BinaryRepository(self.store, self._folder / "binaries"), self._folder)
        streams = [(segment, await stream_of(self.store, segment)) for segment in archive.manifest.segments]
        core(context, streams[:1])

        async def measure() -> Spent:
            begun, cpu = time.perf_counter(), time.process_time()
            core(context, streams)
            return Spent(time.perf_counter() - begun, time.process_time() - cpu)

        return measure, sum(len(stream) for _, stream in streams), len(streams)

    def way(self, session_id: str, pool: SegmentPool[PartTask, bytes], workers_folder: str) -> Measure:
        """The whole decoder on the session."""
        decoder = SessionDecoder(
            self.store,
            Tables(self.store),
            pool,
            folder=self._folder,
            workers_folder=workers_folder,
            debug_folder=DEBUG_FOLDER,
        )

        async def quiet(done: int, total: int) -> None:
            pass

        async def measure() -> Spent:
            self._decodes += 1
            begun, cpu = time.perf_counter(), cpu_s()
            await decoder.decode(session_id, f"bench-{self._decodes}", quiet)
            return Spent(time.perf_counter() - begun, cpu_s() - cpu)

        return measure

    @property
    def workers_folder(self) -> str:
        return str(self._folder)


def core(context: SessionContext, streams: list[tuple[Segment, bytes]]) -> None:
    for segment, stream in streams:
        context.decoder(segment.pid).decode(stream, list(segment.epochs), lambda *_: None)


def cpu_s() -> float:
    """Of this process and of all that run below it: workers do not end meanwhile."""
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.process_time() + sum(spent.user + spent.system for spent in times)


async def scheduling(workers: Workers, tasks: int) -> float:
    """So many tasks that do nothing."""
    pool: SegmentPool[tuple[int, ...], int] = SegmentPool(len, workers)
    await pool.run(())
    slots = asyncio.Semaphore(pool.slots + 1)

    async def one() -> None:
        async with slots:
            await pool.run(())

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(one())
    return time.perf_counter() - begun


async def measured(bench: Bench, cores: int, address: str) -> dict[str, Figure]:
    await cut(bench.store, bench.whole, bench.small, SMALL)
    local_one, local, dask = LocalWorkers(1), LocalWorkers(cores), DaskWorkers(address, None)
    figures: dict[str, Figure] = {}
    try:
        for session_id, name in ((bench.whole, "recorded"), (bench.small, "small")):
            alone, size, segments = await bench.alone(session_id)
            ways = {
                "one worker": bench.way(session_id, SegmentPool(decode_part, local_one), bench.workers_folder),
                f"{cores} workers": bench.way(session_id, SegmentPool(decode_part, local), bench.workers_folder),
                f"Dask, {cores} workers": bench.way(session_id, SegmentPool(decode_part, dask), ""),
            }
            times = await in_turn({"alone": alone} | ways)
            mib = size / MIB
            figures[f"{name}: raw"] = Figure.of([mib], "MiB", f"{segments:,} segments")
            wall = {way: [spent.wall for spent in listed] for way, listed in times.items()}
            cpu = {way: [spent.cpu for spent in listed] for way, listed in times.items()}
            figures[f"{name}: ptcore alone"] = Figure.of([mib / t for t in wall["alone"]], "MiB/s", "one thread")
            for way in ways:
                figures[f"{name}: {way}"] = Figure.of([mib / t for t in wall[way]], "MiB/s", "store to tables")
                figures[f"{name}: {way} to ptcore alone"] = ratios(wall["alone"], wall[way], "goal: 0.5 and more")
                figures[f"{name}: {way}, by CPU time"] = ratios(cpu["alone"], cpu[way], "1: nothing beside ptcore")
        parts = len(planned((await SessionArchive.open(bench.store, bench.small)).manifest.segments, local.slots))
        figures["small: parts"] = Figure.of([parts], "tasks", f"{SMALL:,} segments")
        for name, workers in (("local", local), ("Dask", dask)):
            empty = [await scheduling(workers, parts) for _ in range(ROUNDS)]
            decoding = [spent.wall for spent in times["alone"]]
            figures[f"{name}: scheduling a segment"] = Figure.of([t / SMALL * 1e6 for t in empty], "us")
            figures[f"{name}: scheduling to decoding"] = ratios(empty, decoding, "of ptcore's time for the same")
            each = await scheduling(workers, SMALL // 10) / (SMALL // 10)
            figures[f"{name}: one task"] = Figure.of([each * 1e6], "us", "if each segment were a task")
    finally:
        for workers in (local_one, local, dask):
            workers.close()
    return figures


async def in_turn(measures: dict[str, Measure]) -> dict[str, list[Spent]]:
    """Each once without counting, to start workers and load what they keep; then in turn."""
    for measure in measures.values():
        await measure()
    times: dict[str, list[Spent]] = {name: [] for name in measures}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            times[name].append(await measure())
            spent = times[name][-1]
            print(f"{name}: {spent.wall:.2f} s, {spent.cpu:.2f} s of CPU", flush=True)
    return times


if __name__ == "__main__":
    main()
