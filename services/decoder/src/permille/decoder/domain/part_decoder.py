"""Some segments of a session from the object store to Parquet files in the object store. Runs in a worker process."""

from __future__ import annotations

import asyncio
import mmap
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, lru_cache
from pathlib import Path

from permille.decoder.domain.archive import SessionArchive
from permille.decoder.domain.binary_repository import BinaryRepository
from permille.decoder.domain.core_segments import Thread, Turn, by_switches, bytes_by_thread, of_core
from permille.decoder.domain.cores_together import cores_together
from permille.decoder.domain.decode_plan import streams
from permille.decoder.domain.function_numbers import FunctionKey
from permille.decoder.domain.loss_turns import CoreTurns
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.mapped_packets import giving_back
from permille.decoder.domain.part_packets import Fetched, Stream, fetched_packets, fetched_together
from permille.decoder.domain.part_record import DecodedSegment, LostSegment, PartRecord
from permille.decoder.domain.part_rows import PartRows
from permille.decoder.domain.scratch_file import IN_MEMORY
from permille.decoder.domain.scratch_room import room_in
from permille.decoder.domain.session_context import SessionContext, open_context
from permille.decoder.domain.table_part import WrittenPart
from permille.decoder.domain.wanted_decode import StillWanted, decode_over, require_wanted
from permille.decoder.domain.work_at_once import WorkAtOnce
from permille.mesh.errors import Aborted
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.tables import TableFile
from permille.ptcore import decode_threads, divide

# The tables whose rows workers write.
WRITTEN = ("calls", "edges", "accesses", "inlined", "losses")
_CHUNK = 1 << 20
# Sessions whose images a worker keeps.
_MOST_CONTEXTS = 2


@dataclass(frozen=True)
class _Kept:
    """A context, and the decode that used it last."""

    decode: str
    context: SessionContext


_contexts: OrderedDict[tuple[str, str, str], _Kept] = OrderedDict()
_keeping = threading.Lock()


@dataclass(frozen=True)
class PartTask:
    """Everything that a worker needs beside the store. `decode`: the folder of the decode in the store;
    `recording`: the manifest's SHA-256.

    `folder`: for temporary files and binaries, on the worker's machine. `moved`: functions with another number.
    `inlined`: whether to tell what was inlined into functions. `threads`: how many may share the work on a segment.
    """

    store_url: str
    session_id: str
    recording: str
    decode: str
    segments: tuple[int, ...]
    folder: str
    debug_folder: str
    inlined: bool = False
    threads: int = 1
    moved: tuple[tuple[FunctionKey, int], ...] = ()

    @property
    def record_key(self) -> str:
        """Where the record is put when the files are there."""
        return f"{self.decode}part-{self.segments[0]}-{len(self.segments)}.arrow"

    @property
    def files_begin(self) -> str:
        """How the names of the decode's files in the tables begin."""
        return TableFile.names_begin(self.decode.strip("/").rpartition("/")[2])

    @property
    def begun_key(self) -> str:
        """As long as this object is there, the decode goes on."""
        return f"{self.decode}begun"


def decode_part(task: PartTask) -> bytes:
    """The part's record. Raises what the store raises when it is away or full, `Aborted` when the decode is over.

    And `ResourceExhausted` (SCRATCH_FULL) where the worker has no room for temporary files.
    """
    with room_in(task.folder):
        if threading.current_thread() is threading.main_thread():
            loop = _runner().get_loop()
            loop.set_default_executor(_at_once())
            return _runner().run(_part(task, lambda: loop.set_default_executor(_threads())))
        return asyncio.run(_part(task))


async def _part(task: PartTask, overlap: Callable[[], None] = lambda: None) -> bytes:
    """`overlap`: called where something is fetched while something else is decoded."""
    store = _store(task.store_url)
    context = await _context(store, task)
    wanted = StillWanted(store, task.begun_key)
    rows = PartRows(context, Path(task.folder), dict(task.moved), wanted.require)
    notes: list[str] = []
    decoded, lost = await _segments(context, rows, task, notes, overlap)
    parts = await asyncio.to_thread(rows.finish)
    files = await _stored_files(store, parts, context.archive.manifest.day, task)
    notes = [*context.notes, *notes, *await asyncio.to_thread(context.absent)]
    record = PartRecord(
        context.archive.sha256, tuple(decoded), tuple(lost), tuple(notes), files, rows.function_totals()
    ).to_bytes()
    await _store_record(store, record, task)
    return record


async def _segments(
    context: SessionContext, rows: PartRows, task: PartTask, notes: list[str], overlap: Callable[[], None]
) -> tuple[list[DecodedSegment], list[LostSegment]]:
    by_index = {segment.index: segment for segment in context.archive.manifest.segments}
    wanted = streams(by_index[index] for index in task.segments)
    batches = list(fetched_together(wanted, cores_together=cores_together(context.archive.manifest)))
    decoded: list[DecodedSegment] = []
    lost: list[LostSegment] = []
    if len(batches) > 1:
        overlap()
    async with aclosing(fetched_packets(context, batches, Path(task.folder))) as fetched:
        async for batch in fetched:
            lost += [
                replace(packets, index=segment.index)
                for stream, packets in batch
                if isinstance(packets, LostSegment)
                for segment in stream
            ]
            decoded += await asyncio.to_thread(_decoded, context, rows, batch, task, notes)
    return decoded, lost


async def _stored_files(
    store: ObjectStore, parts: Sequence[WrittenPart], day: date, task: PartTask
) -> dict[str, tuple[TableFile, ...]]:
    await require_wanted(store, task.begun_key)
    files = {part.table: (await stored_part(store, part, day, task),) for part in parts}
    # A decode that ended meanwhile has removed what was there then. Without a record nobody has taken these up.
    if not await store.exists(task.begun_key):
        for table, (file,) in files.items():
            await store.delete(TableFile.key(table, day, task.session_id, file.name))
        raise decode_over(store, task.begun_key)
    return dict(files)


async def _store_record(store: ObjectStore, record: bytes, task: PartTask) -> None:
    await store.put_stream(task.record_key, record)
    # Who ended the decode while the record was put may not have seen it.
    if not await store.exists(task.begun_key):
        await store.delete(task.record_key)
        raise decode_over(store, task.begun_key)


def _decoded(
    context: SessionContext,
    rows: PartRows,
    batch: Sequence[Fetched],
    task: PartTask,
    notes: list[str],
) -> list[DecodedSegment]:
    together = cores_together(context.archive.manifest)
    cores: list[tuple[Stream, mmap.mmap | bytes]] = []
    groups = [cores]
    for stream, packets in batch:
        if isinstance(packets, LostSegment):
            continue
        if together and of_core(stream[0]):
            cores.append((stream, packets))
        else:
            groups.append([(stream, packets)])
    told = []
    for group in filter(None, groups):
        begun = time.perf_counter()
        first = group[0][0][0]
        if of_core(first):
            stats = _of_cores(context, rows, group, task, notes)
        else:
            stats = _of_thread(context, rows, first, group[0][1], task)
        took_ms = (time.perf_counter() - begun) * 1000 / len(stats)
        told += [DecodedSegment(index, of_one.get("calls", 0), took_ms, of_one) for index, of_one in stats.items()]
    return told


def _of_thread(
    context: SessionContext, rows: PartRows, segment: Segment, packets: mmap.mmap | bytes, task: PartTask
) -> dict[int, dict[str, int]]:
    """ptcore's counters by segment."""
    written, timeless = rows.of(segment), context.archive.manifest.timeless
    decoder, epochs = context.decoder(segment.pid), list(segment.epochs)
    with giving_back(packets):
        result = decoder.decode(
            packets,
            epochs,
            written.add,
            inlined=task.inlined,
            timeless=timeless,
            threads=task.threads,
            appended=_appended(context, (segment,), packets),
            missing=_missing((segment,)),
        )
    written.finish(result)
    return {segment.index: dict(result.stats)}


def _of_cores(
    context: SessionContext,
    rows: PartRows,
    group: Sequence[tuple[Stream, mmap.mmap | bytes]],
    task: PartTask,
    notes: list[str],
) -> dict[int, dict[str, int]]:
    """ptcore's counters by segment; all else of a thread is in the segment of the core where it first ran."""
    segments = [segment for stream, _ in group for segment in stream]
    own: dict[Thread, dict[int, Segment]] = {}
    for segment in segments:
        own.setdefault(_thread(segment), {})[_core(segment)] = segment
    core_turns: dict[int, CoreTurns] = {}
    written = {
        (_core(segment), *_thread(segment)): rows.of(segment, own[_thread(segment)], core_turns) for segment in segments
    }
    stats: dict[int, dict[str, int]] = {segment.index: {} for segment in segments}
    cores = []
    with ExitStack() as stack, ThreadPoolExecutor(task.threads) as pool:
        for _, packets in group:
            stack.enter_context(giving_back(packets))
        divided = pool.map(lambda one: _turns(context, *one), group)
        for (stream, packets), (turns, told) in zip(group, divided, strict=True):
            notes += told
            core_turns[_core(stream[0])] = CoreTurns(turns, {_thread(segment): segment for segment in stream})
            cores.append((packets, _core(stream[0]), turns, _is_whole(stream) and len(packets) > 0))
            if by_switches(stream[0]):
                sizes = bytes_by_thread(turns, len(packets))
                stats |= {segment.index: {"size_bytes": sizes.get(_thread(segment), 0)} for segment in stream}
        results = decode_threads(
            cores,
            context.images_or_none(pid for _, _, turns, _ in cores for _, pid, *_ in turns),
            context.config,
            {thread: of_thread.add for thread, of_thread in written.items()},
            switches=context.switches if len(cores) > 1 else None,
            inlined=task.inlined,
            timeless=context.archive.manifest.timeless,
            threads=task.threads,
            # Those of several are decoded together only where none was cut.
            appended=_appended(context, *group[0]) if len(group) == 1 else 0,
            missing={_core(stream[0]): _missing(stream) for stream, _ in group},
        )
    for (first, pid, tid), result in results.items():
        for core, counters in result.cores.items():
            if (there := own.get((pid, tid), {}).get(core)) is not None:
                calls = result.stats["calls"] if core == first else 0
                stats[there.index] |= {**counters, "calls": calls}
        if (first, pid, tid) in written:
            written[first, pid, tid].finish(result)
        elif tid and (count := result.stats["calls"]):
            whose = f"thread {tid} of process {pid}"
            notes.append(f"{whose}: the manifest has no segment of it, its {count} calls are left out")
    for of_one in core_turns.values():
        for index, lost_bytes in of_one.moved.items():
            stats[index]["lost_bytes"] = stats[index].get("lost_bytes", 0) + lost_bytes
    return stats


def _appended(context: SessionContext, stream: Stream, packets: mmap.mmap | bytes) -> int:
    """The bytes that stop the flow where an import has cut a stream."""
    if not context.archive.manifest.imported:
        return 0
    return max(len(packets) - sum(segment.size_bytes for segment in stream), 0)


def _thread(segment: Segment) -> Thread:
    return segment.pid, segment.tid


def _core(segment: Segment) -> int:
    # A manifest need not say it of a stream that nobody else's belongs to.
    return max(segment.core, 0)


def _is_whole(stream: Stream) -> bool:
    return not any(segment.full or segment.lost_bytes or segment.lost_offsets for segment in stream)


def _missing(stream: Stream) -> list[int]:
    """Offsets of the packets in front of which the recorder lost some, in order."""
    return sorted({offset for segment in stream for offset in segment.lost_offsets})


def _turns(context: SessionContext, stream: Stream, packets: mmap.mmap | bytes) -> tuple[list[Turn], list[str]]:
    """Who ran from which offset on, in the stream of a core, and how certain that is not."""
    first = stream[0]
    if not by_switches(first):
        return list(first.turns), []
    turns, total, ambiguous, coarse = divide(packets, context.config, first.core, context.switches, context.epochs)
    if not ambiguous and not coarse:
        return turns, []
    note = (
        f"core {first.core}: of {total} changes of thread or mappings, {ambiguous} fit at several places and"
        f" {coarse} are only as exact as the clock packets: what ran near them may be the other thread's"
    )
    return turns, [note]


async def stored_part(store: ObjectStore, part: WrittenPart, day: date, task: PartTask) -> TableFile:
    """Puts a file where the commit will look for it."""
    name = f"{task.files_begin}{secrets.token_hex(8)}.parquet"

    async def pieces() -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(part.file.read, _CHUNK):
            yield piece

    with part.file:
        data = part.file.read() if part.size_bytes <= IN_MEMORY else pieces()
        await store.put_stream(TableFile.key(part.table, day, task.session_id, name), data)
    return TableFile(name, part.size_bytes, part.rows, part.ranges)


async def _context(store: ObjectStore, task: PartTask) -> SessionContext:
    """The session's context: kept from part to part, and to the next decode if nothing came meanwhile."""
    key = (task.store_url, task.recording, task.debug_folder)
    kept = _contexts.get(key)
    if kept is None or kept.decode != task.decode:
        folder = Path(task.folder)
        binaries = BinaryRepository(store, folder / "binaries", debug_folder=Path(task.debug_folder))
        if kept is None or not await kept.context.is_current(binaries):
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            archive = await SessionArchive.open(store, task.session_id)
            if archive.sha256 != task.recording:
                raise Aborted(
                    "the session was recorded anew meanwhile", reason="RECORDING_CHANGED", help="decode it again"
                )
            kept = _Kept(task.decode, await open_context(archive, binaries, folder))
        kept = replace(kept, decode=task.decode)
    with _keeping:
        _contexts[key] = kept
        _contexts.move_to_end(key)
        while len(_contexts) > _MOST_CONTEXTS:
            _contexts.popitem(last=False)
    return kept.context


@cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


@cache
def _at_once() -> WorkAtOnce:
    return WorkAtOnce()


@cache
def _threads() -> ThreadPoolExecutor:
    # Kept: each new thread takes memory anew, and it is zeroed.
    return ThreadPoolExecutor()


@lru_cache(maxsize=4)
def _store(url: str) -> ObjectStore:
    return open_store(url)
