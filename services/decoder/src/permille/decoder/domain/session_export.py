"""A decoded session as a file of another tool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import duckdb
from permille.decoder.domain.interruptible import interruptible
from permille.decoder.domain.manifest import other_name
from permille.decoder.domain.scratch_room import room_in, scratch_full
from permille.decoder.domain.session_rows import SessionRows, open_rows
from permille.decoder.domain.uninterrupted import uninterrupted
from permille.decoder.domain.unread_table import unread_table
from permille.mesh.errors import InvalidArgument, NotFound
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

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
    """Reads the tables, sorts in `scratch`. What a caller who went away wanted ends."""

    def __init__(self, tables: Tables, scratch: Path) -> None:
        self._tables = tables
        self._scratch = scratch

    async def run(self, wish: ExportWish) -> AsyncGenerator[ExportPiece, None]:
        """The file in pieces. Raises `InvalidArgument` for a wrong wish and `NotFound` for a session not decoded.

        And `ResourceExhausted` (SCRATCH_FULL) without room for sorting.
        """
        _require_sense(wish)
        datasets = await self._tables.datasets()
        with ExitStack() as stack:
            try:
                with room_in(self._scratch):
                    opening = open_rows(datasets, wish.session_id, self._scratch)
                    rows = await uninterrupted(asyncio.to_thread(stack.enter_context, opening))
                    if rows is None:
                        raise _not_decoded(wish.session_id)
                    if wish.session not in ("", named := rows.session["session"]):
                        raise other_name(wish.session, named)
                    omitted, deeper = await interruptible(rows.interrupt, partial(_kept, wish, rows))
                    pieces = _gathered(_pieces(wish, rows))
                    while (piece := await interruptible(rows.interrupt, partial(next, pieces, None))) is not None:
                        yield ExportPiece(piece)
            except duckdb.OutOfMemoryException as error:
                # What finds no place in memory it puts there.
                raise scratch_full(self._scratch, str(error).partition("\n")[0]) from error
            except (duckdb.Error, OSError) as error:
                raise unread_table(error) from error
            yield ExportPiece(b"", omitted, deeper)


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


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
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
