"""One decoded session read back from the tables, thread by thread, in bounded memory."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, starmap
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from permille.decoder.domain.by_segment import by_segment
from permille.decoder.domain.inlined_chain import Chain, chain_of
from permille.decoder.domain.unlocked_dataset import register
from permille.mesh.table_schemas import SCHEMAS

_BATCH_ROWS = 1 << 16
_MEMORY_MIB = 512
_ANY_DEPTH = (1 << 31) - 1
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class Call(NamedTuple):
    """One call; `function` is the key of `SessionRows.functions`."""

    depth: int
    function: int
    start_ns: int
    end_ns: int
    total_instructions: int


@dataclass(frozen=True)
class Function:
    """What a frame shows; a function without a symbol has its address as its name, `symbol_status` says why."""

    name: str
    module: str
    file: str
    line: int
    address: int
    symbol_status: str
    category: str
    build_id: str


@dataclass(frozen=True)
class Thread:
    """The stream of one thread."""

    segment: int
    pid: int
    tid: int
    name: str

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.name or 'thread'} ({self.tid})"


class SessionRows:
    """`session` is its row in the table sessions. Blocking, until `interrupt`: then it raises `InterruptException`.

    `beside`: a second connection to the same tables, since one has one result at a time.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, beside: duckdb.DuckDBPyConnection, session: Mapping[str, Any]
    ) -> None:
        self._connection = connection
        self._beside = beside
        self.session = session
        self._kept = ""
        self._below = _ANY_DEPTH
        self._interrupted = threading.Event()

    def interrupt(self) -> None:
        """Ends what another thread reads."""
        self._interrupted.set()
        self._connection.interrupt()
        self._beside.interrupt()

    def until_interrupted(self, work: Iterable[_Item]) -> Iterator[_Item]:
        """The same items, of work that itself takes long."""
        for item in work:
            if self._interrupted.is_set():
                raise duckdb.InterruptException("nobody waits for these rows")
            yield item

    def threads(self) -> list[Thread]:
        """In the order of their segments; without those of which the calls are in another one of the thread."""
        rows = self._connection.execute(
            "WITH told AS (SELECT segment, pid, tid FROM segments SEMI JOIN calls USING (segment))"
            " SELECT segment, pid, tid, thread FROM segments"
            " WHERE segment IN (SELECT segment FROM told) OR (pid, tid) NOT IN (SELECT (pid, tid) FROM told)"
            " ORDER BY segment"
        ).fetchall()
        return [Thread(*row) for row in rows]

    def functions(self) -> dict[int, Function]:
        """By their number in the session."""
        rows = self._connection.execute(
            "SELECT function, name, module, file, line, address, symbol_status,"
            " coalesce(category, ''), build_id FROM functions ORDER BY function"
        ).fetchall()
        return {number: Function(*rest) for number, *rest in rows}

    def keep_longest(self, most: int) -> int:
        """From now on `calls` tells only so many calls, the longest; returns how many are left out."""
        total = int(self._connection.execute("SELECT count(*) FROM calls").fetchall()[0][0])
        if total <= most:
            return 0
        self._connection.execute(
            "CREATE TEMP TABLE kept AS SELECT segment, call FROM calls ORDER BY end_ns - start_ns DESC, call LIMIT ?",
            [most],
        ).fetchall()
        self._kept = "SEMI JOIN kept USING (segment, call)"
        return total - most

    def keep_shallow(self, most_depth: int) -> int:
        """From now on `calls` tells only those with fewer callers; returns how many are left out."""
        self._below = most_depth
        rows = self._connection.execute(
            f"SELECT count(*) FROM calls {self._kept} WHERE depth >= ?",  # noqa: S608
            [most_depth],
        ).fetchall()
        return int(rows[0][0])

    def calls(self, threads: Sequence[Thread]) -> Iterator[Iterator[Call]]:
        """Of each of these in the order in which they began, callers before what they call.

        Until the last one is read, only `inlined` can be read beside them.
        """
        # One for all: each goes through the calls of every thread.
        rows = self._connection.sql(
            "SELECT segment, depth, function, start_ns, end_ns, total_instructions"  # noqa: S608
            f" FROM calls {self._kept} WHERE depth < {self._below} ORDER BY segment, call"
        )
        return by_segment(self._made(Call, rows), (thread.segment for thread in threads))

    def inlined(self, threads: Sequence[Thread]) -> Iterator[dict[int, list[tuple[Chain, int]]]]:
        """Of each of these by function the instructions of its own code, and of each chain that was inlined into it.

        Of a thread or function that is not there it is not known.
        """
        rows = self._beside.sql(
            "WITH chains AS (SELECT segment, function, chain, name, depth, sum(instructions) AS inlined FROM inlined"
            " WHERE function >= 0 GROUP BY ALL),"
            " whole AS (SELECT segment, function, sum(self_instructions) AS own FROM calls"
            " SEMI JOIN chains USING (segment, function) GROUP BY ALL)"
            " SELECT segment, function, chain, name, depth, inlined::BIGINT, coalesce(own, 0)::BIGINT"
            " FROM chains LEFT JOIN whole USING (segment, function) ORDER BY ALL"
        )
        return map(_parts, by_segment(self._made(_InlinedRow, rows), (thread.segment for thread in threads)))

    def _made(self, kind: type[_Made], rows: duckdb.DuckDBPyRelation) -> Iterator[tuple[int, _Made]]:
        """What their columns make, each beside the first one, its segment."""
        for batch in self.until_interrupted(rows.to_arrow_reader(_BATCH_ROWS)):
            segments, *columns = (column.to_pylist() for column in batch.columns)
            yield from zip(segments, starmap(kind, zip(*columns, strict=True)), strict=True)

    def table(self, name: str) -> pa.RecordBatchReader:
        """All rows of the session in one table, in order."""
        order = "ALL" if name != "calls" else "segment, call"
        rows = self._connection.sql(f"SELECT * FROM {name} ORDER BY {order}")  # noqa: S608
        reader: pa.RecordBatchReader = rows.to_arrow_reader(_BATCH_ROWS)
        return reader


class _InlinedRow(NamedTuple):
    """`whole`: the instructions of the function's calls themselves, with all that was inlined into it."""

    function: int
    chain: str
    name: str
    depth: int
    instructions: int
    whole: int


def _parts(rows: Iterable[_InlinedRow]) -> dict[int, list[tuple[Chain, int]]]:
    found = {}
    for function, group in groupby(rows, attrgetter("function")):
        chains = list(group)
        own = max(chains[0].whole - sum(row.instructions for row in chains), 0)
        told = [(chain_of(row.chain, row.name, row.depth), row.instructions) for row in chains]
        found[function] = [((), own), *told]
    return found


@contextmanager
def open_rows(datasets: Mapping[str, ds.Dataset], session_id: str, scratch: Path) -> Iterator[SessionRows | None]:
    """`datasets`: every table. None when the session is not among the decoded ones. `scratch`: for sorting on disk."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="export-", dir=scratch)
    connection = duckdb.connect(
        ":memory:",
        config={"memory_limit": f"{_MEMORY_MIB}MiB", "threads": "2", "temp_directory": folder},
    )
    beside = connection.cursor()
    try:
        for name, dataset in datasets.items():
            for each in (connection, beside):
                register(each, name, dataset.filter(ds.field("session_id") == session_id))
        columns = ", ".join(SCHEMAS["sessions"].names)
        found = connection.execute(f"SELECT {columns} FROM sessions").fetchall()  # noqa: S608
        session = dict(zip(SCHEMAS["sessions"].names, found[0], strict=True)) if found else None
        yield SessionRows(connection, beside, session) if session else None
    finally:
        beside.close()
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)
