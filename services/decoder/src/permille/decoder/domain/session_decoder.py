"""From the archive of a session to its rows in every table."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from permille.decoder.domain.archive import MapChange, SessionArchive, is_lost
from permille.decoder.domain.binary_repository import BinaryRepository, LocalBinary
from permille.decoder.domain.core_timeline import CoreTimeline, core_timelines
from permille.decoder.domain.image_steps import ImageStep, image_steps
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.segment_decoder import SegmentResult, SegmentTask
from permille.decoder.domain.segment_pool import SegmentPool, WorkerDied
from permille.decoder.domain.session_merge import SessionMerge
from permille.mesh.errors import PermilleError
from permille.mesh.store import ObjectStore
from permille.mesh.tables import Tables

Progress = Callable[[int, int], Awaitable[None]]

_CRASH_KNOB = "report it: permille support-bundle"
_BACKUP_KNOB = "restore the object from a backup of the store, or record again"


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
class _Images:
    """What all segments need: the image of each process, and why an image or a part of it is not known."""

    steps: dict[int, tuple[ImageStep, ...]]
    build_ids: dict[str, str]
    missing: str


@dataclass(frozen=True)
class _Work:
    """One decode while it goes on."""

    archive: SessionArchive
    scratch: Path
    images: _Images
    timelines: dict[int, CoreTimeline]
    merge: SessionMerge

    def task(self, segment: Segment) -> SegmentTask:
        return SegmentTask(
            segment=segment,
            clock=self.archive.manifest.clock,
            options=self.archive.manifest.pt,
            raw=self.scratch / f"segment-{segment.index}.pt",
            code=self.scratch / "code.bin",
            steps=self.images.steps[segment.pid],
            timeline=self.timelines.get(segment.tid, CoreTimeline()),
            out=self.scratch,
        )


class SessionDecoder:
    """Decodes sessions one segment a worker. Doing it twice, at once or after a crash, leaves each row once."""

    def __init__(
        self,
        store: ObjectStore,
        tables: Tables,
        binaries: BinaryRepository,
        pool: SegmentPool[SegmentTask, SegmentResult],
    ) -> None:
        self._store = store
        self._tables = tables
        self._binaries = binaries
        self._pool = pool

    async def decode(self, session_id: str, scratch: Path, decode_id: str, progress: Progress) -> DecodedSession:
        """`scratch`: a folder of this decode, emptied before and after. `progress`: raw bytes decoded, of how many.

        What cannot be decoded becomes losses. Raises `NotFound` for a session that is not stored, `DataLoss` for one
        whose manifest is damaged, and what the store raises when it is away or full.
        """
        archive = await SessionArchive.open(self._store, session_id)
        await asyncio.to_thread(_emptied, scratch)
        try:
            merge = await self._decoded(archive, scratch, progress)
            for table, batches in merge.tables():
                await self._tables.replace_session(table, session_id, batches, decode_id=decode_id)
        except BaseExceptionGroup as group:
            # Segments that failed together, of which one is enough to tell.
            raise group.exceptions[0] from None
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        return DecodedSession(
            session=archive.manifest.session,
            instructions=merge.total("instructions"),
            calls=sum(result.call_count for result in merge.results.values()),
            functions=merge.function_count,
            raw_bytes=sum(segment.size_bytes for segment in archive.manifest.segments),
            lost_bytes=merge.lost_bytes,
        )

    async def _decoded(self, archive: SessionArchive, scratch: Path, progress: Progress) -> SessionMerge:
        manifest = archive.manifest
        notes: list[str] = []
        timelines = await _timelines(archive, notes)
        images = await self._images(archive, scratch / "code.bin", notes)
        work = _Work(archive, scratch, images, timelines, SessionMerge(manifest, images.build_ids, notes=notes))
        total = sum(segment.size_bytes for segment in manifest.segments)
        done = 0
        await progress(0, total)
        # One more than there are workers, so that a worker finds its next packets on the disk.
        slots = asyncio.Semaphore(self._pool.workers + 1)

        async def one(segment: Segment) -> None:
            nonlocal done
            async with slots:
                await self._segment(work, segment)
            done += segment.size_bytes
            await progress(done, total)

        async with asyncio.TaskGroup() as group:
            # The largest first: the smaller ones fill the gaps at the end.
            for segment in sorted(manifest.segments, key=lambda segment: -segment.size_bytes):
                group.create_task(one(segment))
        return work.merge

    async def _segment(self, work: _Work, segment: Segment) -> None:
        if segment.pid not in work.images.steps:
            reason = work.images.missing or f"the mappings of process {segment.pid} are missing"
            work.merge.lose(segment, reason, _BACKUP_KNOB)
            return
        task = work.task(segment)
        try:
            await work.archive.fetch_segment(segment, task.raw)
            work.merge.add(await self._pool.run(task))
        except WorkerDied:
            work.merge.lose(segment, "the decoder's worker process died in it", _CRASH_KNOB)
        except PermilleError as error:
            if not is_lost(error):
                raise
            work.merge.lose(segment, error.message, _BACKUP_KNOB)
        finally:
            await asyncio.to_thread(task.raw.unlink, missing_ok=True)

    async def _images(self, archive: SessionArchive, code: Path, notes: list[str]) -> _Images:
        try:
            processes = await archive.maps()
        except PermilleError as error:
            if not is_lost(error):
                raise
            return _Images({}, {}, error.message)
        code_missing = ""
        if any(change.event == "code" for changes in processes.values() for change in changes):
            code_missing = await _code(archive, code, notes)
        binaries = await self._fetch_binaries([change for changes in processes.values() for change in changes])
        steps = {
            pid: tuple(image_steps(changes, binaries, code_missing=code_missing)) for pid, changes in processes.items()
        }
        build_ids = {
            change.path: change.build_id for changes in processes.values() for change in changes if change.build_id
        }
        return _Images(steps, build_ids, "")

    async def _fetch_binaries(self, changes: list[MapChange]) -> dict[str, LocalBinary]:
        mapped_as = {change.binary: change.path for change in changes if change.binary}
        found = await asyncio.gather(*(self._binaries.fetch(key, path) for key, path in mapped_as.items()))
        return dict(zip(mapped_as, found, strict=True))


async def _timelines(archive: SessionArchive, notes: list[str]) -> dict[int, CoreTimeline]:
    try:
        return core_timelines(await archive.switches())
    except PermilleError as error:
        if not is_lost(error):
            raise
        notes.append(f"the cores of the calls are unknown: {error.message}")
        return {}


async def _code(archive: SessionArchive, to: Path, notes: list[str]) -> str:
    try:
        await archive.fetch_code(to)
    except PermilleError as error:
        if not is_lost(error):
            raise
        notes.append(f"code that no file backs is unknown: {error.message}")
        return error.message
    return ""


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
