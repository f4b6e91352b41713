"""SQL over the tables, and over nothing else: no files, no network, bounded memory, time and rows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from permille.decoder.domain.drained_sink import DrainedSink
from permille.decoder.domain.interruptible import interruptible
from permille.decoder.domain.unread_table import unread_table
from permille.mesh.errors import DeadlineExceeded, InvalidArgument, PermilleError, ResourceExhausted
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

DEFAULT_ROWS = 10_000
MOST_ROWS = 10_000_000
_BATCH_ROWS = 1 << 15
# Of one piece: a message has 16 MiB at most, and a row may have more.
_PIECE_BYTES = 1 << 22
# What duckdb says of an Arrow stream that ended with an error: a file of the table is gone.
_LOST_STREAM = "reading the stream registered as"
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


@dataclass(frozen=True)
class QueryLimits:
    """Of one query."""

    memory_mib: int = 1024
    timeout_s: float = 60.0
    threads: int = 2


@dataclass(frozen=True)
class QueryPart:
    """A piece of one Arrow IPC stream; the last one says whether there were more rows than asked for."""

    arrow_ipc: bytes
    truncated: bool = False


class QueryEngine:
    """DuckDB over whole commits of the tables as they are when the query begins."""

    def __init__(self, tables: Tables, limits: QueryLimits, *, most_at_once: int = 4) -> None:
        self._tables = tables
        self._limits = limits
        self._slots = asyncio.Semaphore(most_at_once)

    async def run(self, sql: str, max_rows: int = 0) -> AsyncGenerator[QueryPart, None]:
        """At most `max_rows` rows (0: 10,000).

        Raises `InvalidArgument` for what is no single SELECT, is wrong or wants something outside the tables,
        `DeadlineExceeded` and `ResourceExhausted` (QUERY_MEMORY) at the limits.
        """
        _require_reading(sql)
        wanted = _rows_wanted(max_rows)
        async with self._slots:
            datasets = await self._tables.datasets()
            with _connection(datasets, self._limits) as connection, _alarm(connection, self._limits) as alarm:
                parts = _parts(connection, sql, wanted)
                while True:
                    try:
                        part = await _next(parts, connection)
                    except duckdb.Error as error:
                        raise _told(error, alarm, self._limits) from None
                    except OSError as error:
                        raise unread_table(error) from None
                    if part is None:
                        return
                    yield part


class _Alarm:
    def __init__(self, connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> None:
        self.rang = False
        self._connection = connection
        self._timer = threading.Timer(limits.timeout_s, self._ring)
        self._timer.daemon = True
        self._timer.start()

    def _ring(self) -> None:
        self.rang = True
        self._connection.interrupt()

    def cancel(self) -> None:
        self._timer.cancel()


@contextmanager
def _alarm(connection: duckdb.DuckDBPyConnection, limits: QueryLimits) -> Iterator[_Alarm]:
    alarm = _Alarm(connection, limits)
    try:
        yield alarm
    finally:
        alarm.cancel()
        connection.interrupt()


@contextmanager
def _connection(datasets: Mapping[str, ds.Dataset], limits: QueryLimits) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = sandboxed(limits)
    try:
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def sandboxed(limits: QueryLimits) -> duckdb.DuckDBPyConnection:
    """An empty database in memory that reaches nothing outside."""
    return duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_unsigned_extensions": "false",
            "temp_directory": "",
            "memory_limit": f"{limits.memory_mib}MiB",
            "threads": str(limits.threads),
        },
    )


def _require_reading(sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _wrong(str(error)) from None
    if len(statements) != 1 or statements[0].type not in _READING:
        raise _wrong("it must be one SELECT")


def _rows_wanted(max_rows: int) -> int:
    if not 0 <= max_rows <= MOST_ROWS:
        raise InvalidArgument(
            f"max_rows is {max_rows:,}",
            reason="MAX_ROWS",
            help=f"use 0 for {DEFAULT_ROWS:,}, or 1 to {MOST_ROWS:,}; `permille export --table` writes whole tables",
            metadata={"field": "max_rows"},
        )
    return max_rows or DEFAULT_ROWS


def _parts(connection: duckdb.DuckDBPyConnection, sql: str, wanted: int) -> Iterator[QueryPart]:
    reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
    sink = DrainedSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        left, truncated = wanted, False
        for batch in reader:
            if batch.num_rows > left:
                batch, truncated = batch.slice(0, left), True  # noqa: PLW2901 - the rest is not wanted
            left -= batch.num_rows
            writer.write_batch(batch)
            yield from _pieces(sink.taken())
            if truncated:
                break
    yield QueryPart(sink.taken(), truncated)


def _pieces(data: bytes) -> Iterator[QueryPart]:
    for begin in range(0, len(data), _PIECE_BYTES):
        yield QueryPart(data[begin : begin + _PIECE_BYTES])


async def _next(parts: Iterator[QueryPart], connection: duckdb.DuckDBPyConnection) -> QueryPart | None:
    """The next part. A caller who goes away interrupts the query."""
    return await interruptible(connection.interrupt, lambda: next(parts, None))


def _told(error: duckdb.Error, alarm: _Alarm, limits: QueryLimits) -> PermilleError:
    if alarm.rang:
        return DeadlineExceeded(
            f"the query took longer than {limits.timeout_s:g} s",
            reason="QUERY_TIMEOUT",
            help="ask for one session (WHERE session_id = ...), or raise query_timeout_s of [decoder]",
            metadata={"timeout_s": f"{limits.timeout_s:g}"},
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return ResourceExhausted(
            f"the query needs more than {limits.memory_mib:,} MiB of memory",
            reason="QUERY_MEMORY",
            help="ask for one session, for fewer columns or with LIMIT, or raise query_memory_mib of [decoder]",
            metadata={"memory_mib": str(limits.memory_mib)},
        )
    if isinstance(error, duckdb.IOException) or _LOST_STREAM in str(error):
        return unread_table(error)
    return _wrong(str(error))


def _wrong(detail: str) -> InvalidArgument:
    return InvalidArgument(
        f"the query cannot be run: {detail.strip()}",
        reason="BAD_QUERY",
        help=f"write one SELECT (DuckDB's SQL) over {', '.join(SCHEMAS)}; files and settings are out of reach",
        metadata={"field": "sql"},
    )
