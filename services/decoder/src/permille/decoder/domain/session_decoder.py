"""From the archive of a session to its rows in every table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from permille.decoder.domain.archive import SessionArchive, is_lost
from permille.decoder.domain.cores_together import cores_together
from permille.decoder.domain.decode_plan import planned, streams
from permille.decoder.domain.decoded_before import require_none_lost_anew
from permille.decoder.domain.manifest import Segment, require_name
from permille.decoder.domain.part_decoder import WRITTEN, PartTask, stored_part
from permille.decoder.domain.part_record import PartRecord, part_record
from permille.decoder.domain.scratch_room import room_in
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_merge import SessionMerge
from permille.decoder.domain.table_part import TablePart, WrittenPart
from permille.decoder.domain.uninterrupted import uninterrupted
from permille.decoder.domain.wanted_decode import require_wanted
from permille.decoder.domain.workers import WorkerDied, WorkersDied
from permille.mesh.errors import FailedPrecondition, NotFound, PermilleError, Unavailable
from permille.mesh.store import ObjectStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import TableFile, Tables
from permille.mesh.whole_sessions import footer_of
from permille.ptcore import Categories

Progress = Callable[[int, int], Awaitable[None]]
_Result = TypeVar("_Result")

_CRASH_KNOB = "report it: permille support-bundle"
# After so long a segment is tried again with which workers ended that somebody else may have killed.
_IN_DOUBT_S = (5.0, 20.0, 60.0)
# Those of which nothing is to be seen before all others are there.
_LAST = "sessions"


@dataclass(frozen=True)
class DecodedSession:
    """What a decode gave."""

    session: str
    instructions: int
    calls: int
    functions: int
    raw_bytes: int
    lost_bytes: int


@dataclass(frozen=True)
class _Work:
    """One decode while it goes on."""

    archive: SessionArchive
    task: PartTask
    merge: SessionMerge
    priority: int
    begun: Callable[[], Awaitable[None]] | None
    # The names of the files that the tables hold now.
    committed: set[str] = field(default_factory=set)

    def part(self, segments: Sequence[Segment]) -> PartTask:
        return replace(self.task, segments=tuple(segment.index for segment in segments))


class SessionDecoder:
    """Decodes sessions part by part in the workers. Doing it twice, at once or after a crash, leaves each row once.

    Workers put the rows into files in the store, and a record of them; one commit for each table makes them visible.
    `folder`: for temporary files; `workers_folder`: for those of the workers, and for binaries ("": they know).
    `categories`: the built-in ones where none are given. `inlined`: whether to tell what was inlined into functions.
    `threads`: as many as the workers' machine has cores for, where parts may be fewer than that.
    """

    def __init__(
        self,
        store: ObjectStore,
        tables: Tables,
        pool: SegmentPool[PartTask, bytes],
        *,
        folder: Path,
        workers_folder: str,
        debug_folder: Path,
        categories: Categories | None = None,
        inlined: bool = False,
        threads: int = 1,
    ) -> None:
        self._store = store
        self._tables = tables
        self._pool = pool
        self._folder = folder
        self._workers_folder = workers_folder
        self._debug_folder = debug_folder
        self._categories = categories or Categories()
        self._inlined = inlined
        self._threads = threads

    async def decode(
        self,
        session_id: str,
        decode_id: str,
        progress: Progress,
        *,
        name: str = "",
        priority: int = 0,
        begun: Callable[[], Awaitable[None]] | None = None,
    ) -> DecodedSession:
        """`decode_id`: with the one of a decode that died, it goes on. `progress`: raw bytes decoded, of how many.
        `name`: what the session has to be called. `begun`: whenever workers have taken a part.

        What cannot be decoded becomes losses. Raises `NotFound` for a session that is not stored, `DataLoss` for one
        whose manifest is damaged, or of which an earlier decode has rows of segments that are lost now,
        `ResourceExhausted` without room for temporary files, `FailedPrecondition` for a worker that has another store,
        and what the store raises when it is away or full.
        """
        archive = await SessionArchive.open(self._store, session_id)
        if name:
            require_name(name, archive.manifest)
        task = replace(self._task(session_id, decode_id), recording=archive.sha256)
        work = _Work(archive, task, SessionMerge(archive.manifest, self._categories), priority, begun)
        # A put that is given up may still come, behind whatever `forget` removes.
        await uninterrupted(self._store.put_stream(task.begun_key, b""))
        try:
            await self._decode(work, progress)
            await self._renumber(work)
            await require_wanted(self._store, task.begun_key)
            # Of one that was deleted meanwhile rows would stay for good.
            await archive.require_there()
            await require_none_lost_anew(self._tables, archive.manifest, work.merge.all_lost())
            await uninterrupted(self._commit(work, decode_id))
        except BaseExceptionGroup as group:
            # Parts that failed together, of which one is enough to tell.
            raise group.exceptions[0] from None
        await self._sweep(archive.manifest.day, task, work.committed)
        return DecodedSession(
            session=archive.manifest.session,
            instructions=work.merge.total("instructions"),
            calls=work.merge.call_count,
            functions=work.merge.function_count,
            raw_bytes=sum(segment.size_bytes for segment in archive.manifest.segments),
            lost_bytes=work.merge.lost_bytes,
        )

    async def forget(self, session_id: str, decode_id: str) -> None:
        """Removes what a decode that is over without a result left in the store, but for what tables hold of it."""
        task = self._task(session_id, decode_id)
        await self._store.delete(task.begun_key)
        try:
            archive = await SessionArchive.open(self._store, session_id)
        except PermilleError as error:
            if not is_lost(error):
                raise
            return
        # One that failed between two commits, or was done by another process meanwhile.
        held = [await self._tables.session_files(table, session_id) for table in SCHEMAS]
        # And one of which the row is there while another one has taken its place in some tables.
        named = {key.rpartition("/")[2] for key in await self._tables.named_files([session_id])}
        await self._sweep(archive.manifest.day, task, named.union(*held), tables=SCHEMAS)

    async def _decode(self, work: _Work, progress: Progress) -> None:
        segments = work.archive.manifest.segments
        total = sum(segment.size_bytes for segment in segments)
        await self._take_up(work)
        left = [segment for segment in segments if not work.merge.knows(segment)]
        done = total - sum(segment.size_bytes for segment in left)
        await progress(done, total)
        # As many as the pool takes: sessions that are decoded at once share it evenly.
        slots = asyncio.Semaphore(self._pool.slots + 1)

        async def one(part: tuple[Segment, ...]) -> None:
            nonlocal done
            async with slots:
                await self._part(work, part)
            done += sum(segment.size_bytes for segment in part)
            await progress(done, total)

        parts = planned(left, self._pool.slots, cores_together=cores_together(work.archive.manifest))
        # A thread of the target has one stream: cores that no part is left for help with the others.
        work = replace(work, task=replace(work.task, threads=max(1, self._threads // max(1, len(parts)))))
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(one(part))

    async def _take_up(self, work: _Work) -> None:
        """Takes over what a decode with the same id had done when it died."""
        async for info in self._store.list(work.task.decode):
            if info.key.endswith(".arrow"):
                try:
                    record = part_record(await self._store.get(info.key))
                except PermilleError as error:
                    if not is_lost(error):
                        raise
                    continue
                if record.recording == work.archive.sha256 and not work.merge.overlaps(record):
                    work.merge.add(record)

    async def _part(self, work: _Work, part: tuple[Segment, ...], *, alone: bool = False) -> None:
        try:
            work.merge.add(await self._run(work, work.part(part), alone=alone))
        except WorkerDied as death:
            together = streams(part)
            if len(together) == 1:
                await self._suspect(work, part, death)
                return
            # One of them is to blame.
            middle = len(together) // 2
            for half in (together[:middle], together[middle:]):
                await self._part(work, tuple(chain.from_iterable(half)), alone=True)

    async def _suspect(self, work: _Work, part: tuple[Segment, ...], death: WorkerDied) -> None:
        """A stream whose worker died while it had nothing else."""
        for pause_s in _IN_DOUBT_S:
            if not isinstance(death, WorkersDied):
                break
            await asyncio.sleep(pause_s)
            try:
                work.merge.add(await self._run(work, work.part(part), alone=True))
            except WorkerDied as again:
                death = again
            else:
                return
        for segment in part:
            work.merge.lose(segment, "the decoder's worker process died in it", _CRASH_KNOB)

    async def _run(self, work: _Work, task: PartTask, *, alone: bool = False) -> PartRecord:
        try:
            record = await self._pool.run(task, priority=work.priority, alone=alone, begun=work.begun)
        except NotFound as error:
            await work.archive.require_there()
            raise _another_store(error) from error
        return part_record(record)

    async def _renumber(self, work: _Work) -> None:
        moved, parts = work.merge.renumbered()
        task = replace(work.task, moved=tuple(moved.items()))
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(self._again(work, replace(task, segments=part)))

    async def _again(self, work: _Work, task: PartTask) -> None:
        try:
            work.merge.add(await self._run(work, task))
        except WorkerDied:
            # It was decoded before: that it ends its worker now is this machine's doing.
            raise Unavailable(
                "the decoder's worker process died while it gave functions other numbers",
                reason="WORKER_DIED",
                help=_CRASH_KNOB,
            ) from None

    async def _commit(self, work: _Work, decode_id: str) -> None:
        # What takes room first: where there is none, nothing has changed yet.
        with room_in(self._folder):
            # In one go: each way to a thread and back takes as long as to write such a file.
            written = await asyncio.to_thread(self._written, work)
            others = [table for table in SCHEMAS if table != _LAST]
            stored = await _each(self._files(work, table, written.get(table)) for table in others)
            files = dict(zip(others, stored, strict=True))
            footer = footer_of({table: [file.name for file in found] for table, found in files.items()})
            row = _table_part(_LAST, self._folder, work.merge.session_row(), footer)
            files[_LAST] = await self._files(work, _LAST, row)
        first = [table for table in SCHEMAS if table != _LAST and files[table]]
        # A table that has nothing of this decode does not tell that it is the one before of which the others still are.
        last = [table for table in SCHEMAS if table not in first]
        for tables in (first, last):
            await _each(self._replace(work, table, files[table], decode_id) for table in tables)

    def _written(self, work: _Work) -> dict[str, WrittenPart]:
        return {table: _table_part(table, self._folder, rows) for table, rows in work.merge.rows() if rows.num_rows}

    async def _files(self, work: _Work, table: str, part: WrittenPart | None) -> list[TableFile]:
        files = work.merge.files(table)
        if part is not None:
            files.append(await stored_part(self._store, part, work.archive.manifest.day, work.task))
        return files

    async def _replace(self, work: _Work, table: str, files: list[TableFile], decode_id: str) -> None:
        manifest = work.archive.manifest
        work.committed.update(file.name for file in files)
        await self._tables.replace_session_files(table, manifest.session_id, manifest.day, files, decode_id=decode_id)

    async def _sweep(self, day: date, task: PartTask, committed: set[str], tables: Iterable[str] = WRITTEN) -> None:
        """Removes the records, and the files of parts that were done twice or of a decode without a result."""
        await self._store.delete_prefix(task.decode)
        for table in tables:
            prefix = TableFile.key(table, day, task.session_id, task.files_begin)
            async for info in self._store.list(prefix):
                if info.key.rpartition("/")[2] not in committed:
                    await self._store.delete(info.key)

    def _task(self, session_id: str, decode_id: str) -> PartTask:
        return PartTask(
            store_url=self._store.url,
            session_id=session_id,
            recording="",
            decode=f"decodes/{decode_id.rpartition('/')[2]}/",
            segments=(),
            folder=self._workers_folder,
            debug_folder=str(self._debug_folder),
            inlined=self._inlined,
        )


def _table_part(table: str, folder: Path, rows: pa.RecordBatch, footer: dict[str, str] | None = None) -> WrittenPart:
    part = TablePart(table, folder, footer)
    part.write(dict(zip(rows.schema.names, rows.columns, strict=True)))
    return part.finish()


def _another_store(error: NotFound) -> FailedPrecondition:
    """A worker does not see what is in the store."""
    return FailedPrecondition(
        f"{error.message}, which the decoder finds there",
        reason="WORKER_STORE",
        help="every worker needs the store under the decoder's URL: the same folder, mounted there, or the same bucket",
        metadata=error.metadata,
    )


async def _each(work: Iterable[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """The results; raises the first error when all have come to their end.

    Threads that store and commit cannot be left: what is swept meanwhile would come into a table.
    """
    done = await asyncio.gather(*work, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]
