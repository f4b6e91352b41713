"""The whole way, from segments in an object store to committed Delta tables, against the core on the same segments.

The core: `Decoder.decode`, which gives calls with times in columns, totals of functions and counts of edges, on one
thread, with the packets in memory. The way: `SessionDecoder` with one worker process: fetching, checking and unpacking
segments, decoding them with the same core, rows, Parquet, records of parts, commits. Both are warm: they have decoded
the same session before. In turns, by CPU time, which is that of the decoder and its worker, and by the clock. The store
is a folder in memory, because it is not disks that are compared.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import zstandard
from figures import Figure, ratios
from permille.decoder.domain.archive import SessionArchive
from permille.decoder.domain.binary_repository import DEBUG_FOLDER, BinaryRepository
from permille.decoder.domain.decode_plan import streams
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_context import SessionContext, open_context
from permille.decoder.domain.session_decoder import SessionDecoder
from permille.mesh.store import ObjectStore
from permille.mesh.tables import Tables

GOAL = "at least 0.5"


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of CPU in this process and all its children."""

    wall: float
    cpu: float


Measure = Callable[[], Awaitable[Spent]]


async def whole_ways(store: ObjectStore, sessions: Mapping[str, str], folder: Path, rounds: int) -> dict[str, Figure]:
    """The figures of each session; `sessions`: id by name."""
    workers = LocalWorkers(1)
    pool: SegmentPool[PartTask, bytes] = SegmentPool(decode_part, workers)
    found: dict[str, Figure] = {}
    try:
        for name, session_id in sessions.items():
            core, size, expected = await alone(store, session_id, folder)
            calls = 0
            decoder = SessionDecoder(
                store, Tables(store), pool, folder=folder, workers_folder=str(folder), debug_folder=DEBUG_FOLDER
            )

            async def way(session_id: str = session_id, decoder: SessionDecoder = decoder) -> Spent:
                nonlocal calls
                clocks = cpu_clocks()
                begun, cpu = time.perf_counter(), cpu_s(clocks)
                calls = (await decoder.decode(session_id, f"bench-{time.time_ns()}", quiet)).calls
                return Spent(time.perf_counter() - begun, cpu_s(clocks) - cpu)

            spent = await in_turns({"core": core, "way": way}, rounds)
            if calls != expected():
                raise SystemExit(f"{name}: {calls} calls are in the tables, the core told {expected()}")
            for by in ("cpu", "wall"):
                seconds = {which: [getattr(one, by) for one in listed] for which, listed in spent.items()}
                clock = "by CPU time" if by == "cpu" else "by the clock"
                found[f"{name}: whole way / core, {clock}"] = ratios(seconds["core"], seconds["way"], GOAL)
            found[f"{name}: core"] = Figure.of([one.cpu * 1e3 for one in spent["core"]], "ms CPU")
            found[f"{name}: whole way"] = Figure.of([one.cpu * 1e3 for one in spent["way"]], "ms CPU")
            found[f"{name}: calls"] = Figure.of([calls], "rows", f"{size / 2**20:.1f} MiB of packets")
            stored = stored_bytes(store, session_id)
            found[f"{name}: tables"] = Figure.of([sum(stored.values()) / 2**20], "MiB")
            if calls:
                found[f"{name}: a call in the table"] = Figure.of([stored["calls"] / calls], "B")
    finally:
        workers.close()
    return found


async def alone(store: ObjectStore, session_id: str, folder: Path) -> tuple[Measure, int, Callable[[], int]]:
    """The core on the session's segments, which are in memory; their bytes; how many calls it told."""
    archive = await SessionArchive.open(store, session_id)
    context = await open_context(archive, BinaryRepository(store, folder / "binaries"), folder)
    packets = [
        (segments, zstandard.ZstdDecompressor().decompressobj().decompress(await store.get(segments[0].key)))
        for segments in streams(archive.manifest.segments)
    ]
    if any(segments[0].turns for segments, _ in packets):
        raise SystemExit(f"{session_id}: streams of cores are not compared")

    told = 0

    async def measure() -> Spent:
        nonlocal told
        begun, cpu = time.perf_counter(), time.process_time()
        told = sum(decode(context, segment.pid, stream, list(segment.epochs)) for (segment, *_), stream in packets)
        return Spent(time.perf_counter() - begun, time.process_time() - cpu)

    return measure, sum(len(stream) for _, stream in packets), lambda: told


def decode(context: SessionContext, pid: int, stream: bytes, epochs: list[tuple[int, int]]) -> int:
    """How many calls there are."""
    timeless = context.archive.manifest.timeless
    return context.decoder(pid).decode(stream, epochs, lambda *_: None, timeless=timeless).stats["calls"]


async def in_turns(measures: Mapping[str, Measure], rounds: int) -> dict[str, list[Spent]]:
    """Twice without counting, so that workers are there and all code is known."""
    spent: dict[str, list[Spent]] = {name: [] for name in measures}
    for number in range(rounds + 2):
        for name, measure in measures.items():
            one = await measure()
            if number > 1:
                spent[name].append(one)
    return spent


def cpu_clocks() -> list[int]:
    """Of this process and of all that run below it. To find them takes time: workers do not end meanwhile."""
    # clock_getcpuclockid(3), as Linux numbers the clocks of processes.
    children = [(~child.pid << 3) | 2 for child in psutil.Process().children(recursive=True)]
    return [time.CLOCK_PROCESS_CPUTIME_ID, *children]


def cpu_s(clocks: list[int]) -> float:
    return sum(map(time.clock_gettime, clocks))


def stored_bytes(store: ObjectStore, session_id: str) -> dict[str, int]:
    """What the tables hold of the session after the last decode: earlier ones' files stay until they are vacuumed."""
    root = Path(urlsplit(store.url).path) / "tables"
    found: dict[str, int] = {}
    for table in root.iterdir():
        begun: dict[str, int] = {}
        for file in table.glob(f"day=*/session_id={session_id}/*.parquet"):
            decode_id = file.name.rpartition("-")[0]
            begun[decode_id] = begun.get(decode_id, 0) + file.stat().st_size
        found[table.name] = begun[max(begun)] if begun else 0
    return found


async def quiet(done: int, total: int) -> None:
    pass
