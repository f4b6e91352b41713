"""SQL over the tables, and over nothing else: no files, no network, bounded memory, time and rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from permille.decoder.domain.deadline import deadline
from permille.decoder.domain.drained_sink import DrainedSink
from permille.decoder.domain.handed_over import HandOver, handed_over
from permille.decoder.domain.interruptible import interruptible
from permille.decoder.domain.query_limits import QueryLimits
from permille.decoder.domain.unlocked_dataset import register
from permille.decoder.domain.unread_table import is_unread, unread_table
from permille.mesh.errors import InvalidArgument, PermilleError
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

DEFAULT_ROWS = 10_000
MOST_ROWS = 10_000_000
# As many as DuckDB computes at once: it counts no memory that rows on their way out take.
_BATCH_ROWS = 2048
# gRPC's clients take messages of 4 MiB, where they are told nothing else, and a row may have more.
_PIECE_BYTES = 1 << 20
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


@dataclass(frozen=True)
class QueryPart:
    """A piece of one Arrow IPC stream; the last one says whether there were more rows than asked for."""

    arrow_ipc: bytes
    truncated: bool = False


class QueryEngine:
    """DuckDB over whole commits of the tables as they are when the query begins; in threads of its own."""

    def __init__(self, tables: Tables, limits: QueryLimits) -> None:
        self._tables = tables
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.at_once)
        self._threads = ThreadPoolExecutor(limits.at_once, thread_name_prefix="query")

    def run(self, sql: str, max_rows: int = 0) -> AsyncGenerator[QueryPart, None]:
        """At most `max_rows` rows (0: 10,000).

        Raises `InvalidArgument` for what is no single SELECT, is wrong or wants something outside the tables,
        `DeadlineExceeded` (QUERY_TIMEOUT) and `ResourceExhausted` (QUERY_MEMORY, QUERIES_AT_ONCE) at the limits. The
        time is also that of who takes the parts: at its end the query holds nothing any more, taken or not.
        """
        return handed_over(partial(self._answer, sql, max_rows))

    async def _answer(self, sql: str, max_rows: int, hand_over: HandOver[QueryPart]) -> None:
        _require_reading(sql)
        wanted = _rows_wanted(max_rows)
        limits, clock = self._limits, asyncio.get_running_loop().time
        async with self._turn():
            end_s = clock() + limits.timeout_s
            async with deadline(end_s - clock(), limits.too_slow):
                datasets = await self._tables.datasets()
            with _connection(datasets, limits) as connection, closing(_parts(connection, sql, wanted, limits)) as parts:
                while True:
                    async with deadline(end_s - clock(), limits.too_slow):
                        part = await self._next(parts, connection)
                    if part is None:
                        return
                    async with deadline(end_s - clock(), limits.unread):
                        await hand_over(part)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        async with deadline(self._limits.timeout_s, self._limits.no_turn):
            await self._turns.acquire()
        try:
            yield
        finally:
            self._turns.release()

    async def _next(self, parts: Iterator[QueryPart], connection: duckdb.DuckDBPyConnection) -> QueryPart | None:
        try:
            return await interruptible(self._threads, connection.interrupt, partial(next, parts, None))
        except duckdb.Error as error:
            raise _told(error, self._limits) from None
        except OSError as error:
            raise unread_table(error) from None


@contextmanager
def _connection(datasets: Mapping[str, ds.Dataset], limits: QueryLimits) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = sandboxed(limits)
    try:
        for name, dataset in datasets.items():
            register(connection, name, dataset)
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.interrupt()
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


def _parts(connection: duckdb.DuckDBPyConnection, sql: str, wanted: int, limits: QueryLimits) -> Generator[QueryPart]:
    reader = connection.sql(sql).to_arrow_reader(min(wanted + 1, _BATCH_ROWS))
    sink = DrainedSink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        left, truncated = wanted, False
        for batch in reader:
            if batch.nbytes > limits.memory_mib << 20:
                raise limits.too_much_memory()
            if batch.num_rows > left:
                batch, truncated = batch.slice(0, left), True  # noqa: PLW2901 - the rest is not wanted
            left -= batch.num_rows
            writer.write_batch(batch)
            if sink.size >= _PIECE_BYTES:
                yield from _pieces(sink.taken())
            if truncated:
                break
    yield QueryPart(sink.taken(), truncated)


def _pieces(data: bytes) -> Iterator[QueryPart]:
    for begin in range(0, len(data), _PIECE_BYTES):
        yield QueryPart(data[begin : begin + _PIECE_BYTES])


def _told(error: duckdb.Error, limits: QueryLimits) -> PermilleError:
    if isinstance(error, duckdb.OutOfMemoryException):
        return limits.too_much_memory()
    if is_unread(error):
        return unread_table(error)
    return _wrong(str(error))


def _wrong(detail: str) -> InvalidArgument:
    return InvalidArgument(
        f"the query cannot be run: {detail.strip()}",
        reason="BAD_QUERY",
        help=f"write one SELECT (DuckDB's SQL) over {', '.join(SCHEMAS)}; files and settings are out of reach",
        metadata={"field": "sql"},
    )
