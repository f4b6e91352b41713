"""Delta tables on the object store: a session's rows in a table appear, change and go as a whole."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from permille.mesh.errors import InvalidArgument, NotFound, Unavailable
from permille.mesh.opened_tables import OpenedTables
from permille.mesh.own_threads import OwnThreads
from permille.mesh.rows_in_memory import RowsInMemory
from permille.mesh.store.object_store import ObjectStore, StoreUsage
from permille.mesh.table_errors import told
from permille.mesh.table_log import TableLog
from permille.mesh.table_schemas import PARTITIONS, SCHEMAS, STATISTICS
from permille.mesh.whole_sessions import Footers, Named, doubtful_sessions, named_files, with_files

# Delta's own default of 15 gives up when a few processes commit at once.
_MOST_RETRIES = 100
_MOST_REPLACEMENTS = 20
_AT_ONCE = 16
# Each commit lists the folder of the log and reads what came after the last checkpoint: Delta's own 100 commits and 30
# days make most of what a small session costs. Nobody may take longer than the log is kept from reading it to writing.
_CHECKPOINT_COMMITS = 20
_LOG = {
    "delta.checkpointInterval": str(_CHECKPOINT_COMMITS),
    "delta.logRetentionDuration": "interval 10 minutes",
}
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class TableFile:
    """A Parquet file that was put below its table's folder by `TableFile.key`, without the partition columns.

    `ranges`: least and greatest value of the columns that Delta keeps statistics of. `name`: see `names_begin`.
    """

    name: str
    size_bytes: int
    rows: int
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def names_begin(decode_id: str) -> str:
        """How the names of a decode's files begin; 16 hexadecimal digits of the file's own and `.parquet` follow."""
        return f"part-{decode_id}-"

    @staticmethod
    def key(table: str, day: date, session_id: str, name: str) -> str:
        """Where the file `name` of a session has to be in the object store."""
        return f"tables/{table}/{_folder(day, session_id)}/{name}"


class Tables:
    """The tables of `table_schemas.SCHEMAS` below `tables/` of a store.

    Every method raises what `ObjectStore` raises for a store that is away, denied or full, and `Aborted` when too many
    commits came between. On S3 the commits need a server whose conditional put (If-None-Match) is atomic.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        # What was read of a table's log; whoever uses it has it alone.
        self._known: dict[str, TableLog] = {}
        self._opened = OpenedTables(store, self._open)
        self._footers: Footers = {}
        self._sessions = RowsInMemory()
        self._threads = OwnThreads(_AT_ONCE, "tables")

    async def replace_session(
        self, table: str, session_id: str, batches: Iterable[pa.RecordBatch], *, decode_id: str = ""
    ) -> None:
        """One commit that puts these rows in the place of all that the table has of the session.

        `batches` have the table's schema and are read in a thread, again for each try; doing it again changes
        nothing. `decode_id` is kept in the commit's metadata.
        """
        _require_session_id(session_id)
        work = partial(self._replace, table, session_id, batches, decode_id)
        await self._written(table, lambda: _anew(_MOST_REPLACEMENTS, work))

    async def replace_session_files(
        self, table: str, session_id: str, day: date, files: Sequence[TableFile], *, decode_id: str = ""
    ) -> None:
        """One commit that puts files which are already there in the place of all that the table has of the session.

        None where the table has nothing of the session and there are no files.
        """
        _require_session_id(session_id)
        work = partial(self._replace_files, table, session_id, day, files, decode_id)
        await self._written(table, lambda: _anew(_MOST_RETRIES, work))

    async def session_files(self, table: str, session_id: str) -> set[str]:
        """The names of the files that the table holds of the session now."""
        _require_session_id(session_id)
        held = await self._files(table, f"session_id = '{session_id}'")
        return {uri.rpartition("/")[2] for uri in held}

    async def files(self, table: str) -> set[str]:
        """The keys of all files that the table holds now, in the object store."""
        return {f"tables/{table}/{uri.rpartition(f'/{table}/')[2]}" for uri in await self._files(table, None)}

    async def delete_session(self, session_id: str) -> StoreUsage:
        """Takes the session out of every table, then removes the files; what was freed."""
        _require_session_id(session_id)
        objects = size = 0
        for table in SCHEMAS:
            await self._call(table, partial(_anew, _MOST_REPLACEMENTS, partial(self._delete, table, session_id)))
            marker = f"/session_id={session_id}/"
            folders = {
                info.key[: info.key.index(marker) + len(marker)]
                async for info in self._store.list(f"tables/{table}/")
                if marker in info.key
            }
            for folder in folders:
                freed = await self._store.delete_prefix(folder)
                objects, size = objects + freed.objects, size + freed.size_bytes
        return StoreUsage(objects, size)

    async def dataset(self, table: str) -> ds.Dataset:
        """The table as it is now, as a pyarrow dataset; empty when nothing was ever written."""
        schema = _schema(table)
        found = await self._call(table, lambda: self._opened.dataset(table, schema))
        if found is None:
            await self._require_store(table)
        return found or ds.dataset(schema.empty_table())

    async def datasets(self) -> dict[str, ds.Dataset]:
        """All tables as they are now, with the rows of one decode of each session: of the last that is whole.

        Another one may just be taking its place, or have failed in the middle of that. Sessions of which no decode is
        whole are left out, as are those that are just being deleted.
        """
        found = await self._whole_sessions()
        found["sessions"] = await self._call("sessions", lambda: self._sessions.dataset(found["sessions"]))
        return found

    async def _whole_sessions(self) -> dict[str, ds.Dataset]:
        found = {"sessions": (sessions := await self.dataset("sessions"))}
        for table in SCHEMAS:
            if table not in found:
                found[table] = await self.dataset(table)
        later = await self.dataset("sessions")
        doubtful = doubtful_sessions(found, later)
        footers = await self._footers_of(sessions, {*doubtful.partial, *doubtful.lacking})
        # Most of those that a table has nothing of have no rows there.
        wanted = doubtful.partial | {
            session_id
            for session_id, lacking in doubtful.lacking.items()
            if any((footers[session_id] or {}).get(table) for table in lacking)
        }
        if not wanted:
            return found
        named = {session_id: await self._if_there(footers[session_id], found) for session_id in wanted}
        return {table: with_files(table, dataset, named) for table, dataset in found.items()}

    async def named_files(self, session_ids: Collection[str]) -> set[str]:
        """The keys of the files that the sessions' rows name as those of their decodes, held by a table or not."""
        footers = await self._footers_of(await self.dataset("sessions"), session_ids)
        named = [item for footer in footers.values() for item in (footer or {}).items()]
        return {f"tables/{table}/{path}" for table, paths in named for path in paths}

    async def session(self, table: str, session_id: str) -> ds.Dataset:
        """The session's rows in the table; read with the filter that comes with it, partitions are skipped."""
        _require_session_id(session_id)
        dataset = await self.dataset(table)
        return dataset.filter(ds.field("session_id") == session_id)

    async def _footers_of(self, sessions: ds.Dataset, wanted: Collection[str]) -> dict[str, Named | None]:
        if not wanted:
            return {}
        known = self._footers
        found, self._footers = await self._call("sessions", lambda: named_files(sessions, wanted, known))
        return found

    async def _if_there(self, named: Named | None, tables: Mapping[str, ds.Dataset]) -> Named | None:
        """What a session's row names, if all of it is there."""
        for table, paths in (named or {}).items():
            if table not in tables:
                # Of a later release.
                continue
            if not isinstance(tables[table], ds.FileSystemDataset):
                return None
            folders = {path.rpartition("/")[0] for path in paths}
            there = {info.key for folder in folders async for info in self._store.list(f"tables/{table}/{folder}/")}
            if not there.issuperset(f"tables/{table}/{path}" for path in paths):
                return None
        return named

    def _open(self, table: str) -> DeltaTable | None:
        uri, options = self._store.table_location(table)
        try:
            return DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            return None

    def _log(self, table: str) -> TableLog:
        """The table's log, of one that was read before only what is new in it. Raises `_Absent`."""
        known = self._known.pop(table, None)
        if known is not None and known.read_on():
            return known
        return TableLog(self._store, table, self._current(table))

    def _current(self, table: str) -> DeltaTable:
        """The table, with the columns that were thought of after it was made. Raises `_Absent`."""
        found = self._open(table)
        if found is None:
            raise _Absent(f"there is no table {table}", reason="STORE_UNAVAILABLE", help="try again")
        known = {column.name for column in found.schema().fields}
        missing = [column for column in Schema.from_arrow(_schema(table)).fields if column.name not in known]
        if missing:
            # Whoever comes second tries again with the columns there.
            found.alter.add_columns(missing, commit_properties=CommitProperties(max_commit_retries=0))
        return found

    def _create(self, table: str) -> DeltaTable:
        uri, options = self._store.table_location(table)
        if "://" not in uri:
            Path(uri).mkdir(parents=True, exist_ok=True)
        statistics = {"delta.dataSkippingStatsColumns": STATISTICS[table]} if STATISTICS[table] else {}
        try:
            return DeltaTable.create(
                uri,
                _schema(table),
                mode="ignore",
                name=table,
                partition_by=list(PARTITIONS),
                configuration=_LOG | (statistics or {"delta.dataSkippingNumIndexedCols": "0"}),
                storage_options=options,
                # A retry would commit the creation on top of another's, and change the metadata under all writers.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError:
            # Another process was first.
            found = self._open(table)
            if found is None:
                raise
            return found

    def _replace(self, table: str, session_id: str, batches: Iterable[pa.RecordBatch], decode_id: str) -> None:
        schema = _schema(table)
        write_deltalake(
            self._current(table),
            pa.RecordBatchReader.from_batches(schema, batches),
            mode="overwrite",
            predicate=f"session_id = '{session_id}'",
            writer_properties=WriterProperties(compression="ZSTD"),
            commit_properties=_commit(decode_id),
        )

    def _replace_files(
        self, table: str, session_id: str, day: date, files: Sequence[TableFile], decode_id: str
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        adds = [_added(file, session_id, day, now_ms) for file in files]
        log = self._log(table)
        before = log.version
        # What is to be removed is known only as of the version that was read.
        if not log.replace(session_id, adds, decode_id):
            raise CommitFailedError(table)
        if log.version > before and log.is_long(_CHECKPOINT_COMMITS):
            self._shorten(table)
        self._known[table] = log

    def _shorten(self, table: str) -> None:
        """Only a commit with a checkpoint shortens the log, which is listed for that."""
        # The commit is made: where this fails a later one does it.
        with suppress(DeltaError, OSError):
            found = self._open(table)
            if found is not None:
                found.create_checkpoint()
                found.cleanup_metadata()

    def _delete(self, table: str, session_id: str) -> None:
        found = self._open(table)
        if found is not None:
            found.delete(f"session_id = '{session_id}'", commit_properties=_commit(""))

    async def _files(self, table: str, which: str | None) -> list[str]:
        def held() -> list[str] | None:
            found = self._open(table)
            return None if found is None else found.file_uris(file_pruning_predicate=which)

        files = await self._call(table, held)
        if files is None:
            await self._require_store(table)
        return files or []

    async def _written(self, table: str, work: Callable[[], None]) -> None:
        try:
            await self._call(table, work)
        except _Absent:
            await self._require_store(table)
            await self._call(table, lambda: self._create(table))
            await self._call(table, work)

    async def _require_store(self, table: str) -> None:
        # Of a store that is away there is no table either.
        await self._store.exists(f"tables/{table}")

    async def _call(self, table: str, work: Callable[[], _Result]) -> _Result:
        try:
            return await self._threads.run(work)
        except (DeltaError, OSError) as error:
            raise told(table, error, self._store.url, tries=_MOST_RETRIES) from error


class _Absent(Unavailable):
    """A table that nobody has made yet, or whose store is away."""


def _anew(tries: int, work: Callable[[], None]) -> None:
    """Work on a table, once more where a commit was in its way: another's, or its own of which the answer was lost.

    Delta wants the table read anew.
    """
    for tries_left in reversed(range(tries)):
        try:
            return work()
        except CommitFailedError:
            if not tries_left:
                raise
            time.sleep(random.uniform(0.01, 0.2))  # noqa: S311
    return None


def _folder(day: date, session_id: str) -> str:
    return f"day={day.isoformat()}/session_id={session_id}"


def _added(file: TableFile, session_id: str, day: date, now_ms: int) -> dict[str, Any]:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: least for name, (least, _) in file.ranges.items()},
        "maxValues": {name: greatest for name, (_, greatest) in file.ranges.items()},
        "nullCount": dict.fromkeys(file.ranges, 0),
    }
    return {
        "path": f"{_folder(day, session_id)}/{file.name}",
        "partitionValues": {"day": day.isoformat(), "session_id": session_id},
        "size": file.size_bytes,
        "modificationTime": now_ms,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def _schema(table: str) -> pa.Schema:
    schema = SCHEMAS.get(table)
    if schema is None:
        raise NotFound(
            f"there is no table {table!r}",
            reason="NO_SUCH_TABLE",
            help=f"the tables are {', '.join(SCHEMAS)}",
            metadata={"table": table},
        )
    return schema


def _commit(decode_id: str) -> CommitProperties:
    return CommitProperties(custom_metadata={"permille.decode": decode_id}, max_commit_retries=_MOST_RETRIES)


def _require_session_id(session_id: str) -> None:
    if not _SESSION_ID.fullmatch(session_id):
        raise InvalidArgument(
            f"{session_id!r} is no session id",
            reason="BAD_SESSION_ID",
            help="a session id is letters, digits, '-', '_' and '.'; `permille sessions` lists those there are",
            metadata={"session_id": session_id},
        )
