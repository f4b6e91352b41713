"""A decoded session as a file of another tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb
from permille.decoder.domain.deadline import deadline
from permille.decoder.domain.handed_over import HandOver, handed_over
from permille.decoder.domain.interruptible import interruptible
from permille.decoder.domain.manifest import other_name
from permille.decoder.domain.scratch_room import room_in, scratch_full
from permille.decoder.domain.session_rows import SessionRows, open_rows
from permille.decoder.domain.unread_table import is_unread, unread_table
from permille.mesh.errors import DeadlineExceeded, InvalidArgument, NotFound
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

_Result = TypeVar("_Result")
_PIECE_BYTES = 1 << 20


class ExportFormat(StrEnum):
    """The value is the end of the file's name."""

    PERFETTO = "perfetto-trace"
    SPEEDSCOPE = "speedscope.json"
    FOLDED = "folded"
    PPROF = "pb.gz"
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


_TABULAR = (ExportFormat.CSV, ExportFormat.PARQUET, ExportFormat.JSON)


@dataclass(frozen=True)
class ExportPiece:
    """`omitted_calls` and `deeper_calls` on the last piece."""

    data: bytes
    omitted_calls: int = 0
    deeper_calls: int = 0


@dataclass(frozen=True)
class ExportWish:
    """`table` for tabular formats, `max_calls` and `max_depth` (0: all) for the others: the longest, the outermost.

    `session`: what the session has to be called.
    """

    session_id: str
    format: ExportFormat
    table: str = ""
    max_calls: int = 0
    max_depth: int = 0
    session: str = ""

    @property
    def file_name(self) -> str:
        """Of the whole."""
        table = f"-{self.table or 'calls'}" if self.format in _TABULAR else ""
        return f"{self.session_id}{table}.{self.format}"


class SessionExports:
    """Reads the tables, sorts in `scratch`, in threads of its own. What a caller who went away wanted ends."""

    def __init__(self, tables: Tables, scratch: Path, *, at_once: int = 4, unread_s: float = 300.0) -> None:
        """`at_once`: further ones wait. `unread_s`: so long a piece may not be taken."""
        self._tables = tables
        self._scratch = scratch
        self._unread_s = unread_s
        self._turns = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="export")

    def run(self, wish: ExportWish) -> AsyncGenerator[ExportPiece, None]:
        """The file in pieces. Raises `InvalidArgument` for a wrong wish and `NotFound` for a session not decoded.

        And `ResourceExhausted` (SCRATCH_FULL) without room for sorting, `DeadlineExceeded` (EXPORT_UNREAD) when its
        pieces are not taken: those who wait for their turn do so for who takes them.
        """
        return handed_over(partial(self._export, wish))

    async def _export(self, wish: ExportWish, hand_over: HandOver[ExportPiece]) -> None:
        _require_sense(wish)
        async with self._turns:
            datasets = await self._tables.datasets()
            with ExitStack() as stack:
                try:
                    with room_in(self._scratch):
                        opening = open_rows(datasets, wish.session_id, self._scratch)
                        rows = await self._step(lambda: None, partial(stack.enter_context, opening))
                        if rows is None:
                            raise _not_decoded(wish.session_id)
                        if wish.session not in ("", named := rows.session["session"]):
                            raise other_name(wish.session, named)
                        omitted, deeper = await self._step(rows.interrupt, partial(_kept, wish, rows))
                        pieces = stack.enter_context(closing(_gathered(_pieces(wish, rows))))
                        while (piece := await self._step(rows.interrupt, partial(next, pieces, None))) is not None:
                            async with deadline(self._unread_s, self._unread):
                                await hand_over(ExportPiece(piece))
                except duckdb.OutOfMemoryException as error:
                    # What finds no place in memory it puts there.
                    raise scratch_full(self._scratch, str(error).partition("\n")[0]) from error
                except (duckdb.Error, OSError) as error:
                    if not is_unread(error):
                        raise
                    raise unread_table(error) from error
        await hand_over(ExportPiece(b"", omitted, deeper))

    async def _step(self, interrupt: Callable[[], None], work: Callable[[], _Result]) -> _Result:
        return await interruptible(self._threads, interrupt, work)

    def _unread(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the client took nothing of the export for {self._unread_s:g} s",
            reason="EXPORT_UNREAD",
            help="write it to a file (`permille export -o FILE`) and look at that",
            metadata={"unread_s": f"{self._unread_s:g}"},
        )


def _kept(wish: ExportWish, rows: SessionRows) -> tuple[int, int]:
    """How many calls are left out because of `max_calls`, and how many because of `max_depth`."""
    omitted = rows.keep_longest(wish.max_calls) if wish.max_calls else 0
    return omitted, rows.keep_shallow(wish.max_depth) if wish.max_depth else 0


def _pieces(wish: ExportWish, rows: SessionRows) -> Iterator[bytes]:
    # Loaded when asked for: Perfetto's messages alone take a while.
    from permille.decoder.domain.exports import folded, perfetto, pprof, speedscope, tabular  # noqa: PLC0415

    table = wish.table or "calls"
    writers: dict[ExportFormat, Callable[[], Iterator[bytes]]] = {
        ExportFormat.PERFETTO: lambda: perfetto.perfetto(rows),
        ExportFormat.SPEEDSCOPE: lambda: speedscope.speedscope(rows),
        ExportFormat.FOLDED: lambda: folded.folded(rows),
        ExportFormat.PPROF: lambda: pprof.pprof(rows),
        ExportFormat.CSV: lambda: tabular.csv(rows, table),
        ExportFormat.PARQUET: lambda: tabular.parquet(rows, table),
        ExportFormat.JSON: lambda: tabular.json_rows(rows, table),
    }
    return writers[wish.format]()


def _gathered(pieces: Iterator[bytes]) -> Generator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= _PIECE_BYTES:
            yield bytes(held[:_PIECE_BYTES])
            del held[:_PIECE_BYTES]
    if held:
        yield bytes(held)


def _require_sense(wish: ExportWish) -> None:
    if wish.table and wish.format not in _TABULAR:
        raise InvalidArgument(
            f"{wish.format.name} shows calls, not the table {wish.table!r}",
            reason="EXPORT_TABLE",
            help="leave the table away, or choose csv, parquet or json",
            metadata={"field": "table"},
        )
    if wish.table and wish.table not in SCHEMAS:
        raise InvalidArgument(
            f"there is no table {wish.table!r}",
            reason="EXPORT_TABLE",
            help=f"the tables are {', '.join(SCHEMAS)}",
            metadata={"field": "table"},
        )
    for field, most, query in (
        ("max_calls", wish.max_calls, "with LIMIT"),
        ("max_depth", wish.max_depth, "on `depth`"),
    ):
        if most < 0 or (most and wish.format in _TABULAR):
            raise InvalidArgument(
                f"{field} is {most} for {wish.format.name}",
                reason=f"EXPORT_{field.upper()}",
                help=f"0 keeps all; only time lines and profiles can leave calls out: use a query {query} for tables",
                metadata={"field": field},
            )


def _not_decoded(session_id: str) -> NotFound:
    return NotFound(
        f"the session {session_id} is not among the decoded ones",
        reason="SESSION_NOT_DECODED",
        help="`permille sessions` lists what there is; one that is still being decoded appears when it is whole",
        metadata={"session_id": session_id},
    )
