"""Gathers what ptcore made of the segments of a part and writes it to one file for each table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.function_numbers import FunctionKey, numbered
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.part_record import FUNCTIONS
from permille.decoder.domain.ptcore_columns import primitive_array, text_array
from permille.decoder.domain.segment_rows import (
    FunctionColumns,
    SegmentFunctions,
    Slice,
    access_columns,
    call_columns,
    edge_columns,
    inlined_columns,
    loss_columns,
    placed,
)
from permille.decoder.domain.session_context import SessionContext
from permille.decoder.domain.table_part import TablePart
from permille.ptcore import Callers, Decoded

if TYPE_CHECKING:
    from permille.ptcore._ptcore import Columns

pc: Any = pyarrow.compute

# Rows of one row group, and about as many as ptcore hands out at once: bounds the memory of a worker.
_GROUP_ROWS = 1 << 18
_SUMMED = ("calls", "self_instructions", "total_instructions", "self_ticks", "total_ticks")
_DESCRIBED = ("size", "symbol_status", "file", "line")
_KEY = ("binary", "address", "name")
_TEXT = ("binary", "name", "symbol_status", "file")


class PartRows:
    """Rows go to temporary files in `folder`. `moved`: functions with another number than their own."""

    def __init__(self, context: SessionContext, folder: Path, moved: dict[FunctionKey, int]) -> None:
        self._context = context
        self._clock = context.archive.manifest.clock
        self._moved = moved
        self._calls, self._edges, self._losses = (TablePart(name, folder) for name in ("calls", "edges", "losses"))
        self._accesses, self._inlined = TablePart("accesses", folder), TablePart("inlined", folder)
        self._of_code: dict[str, list[tuple[Segment, Mapping[str, Any], SegmentFunctions]]] = {
            "accesses": [],
            "inlined": [],
        }
        self._waiting_of_code = 0
        self._known: dict[FunctionKey, int] = {}
        self._described: dict[str, list[Any]] = {name: [] for name in _DESCRIBED}
        self._totals: list[pa.Table] = []
        # Of segments whose rows are not written yet.
        self._functions: list[tuple[Mapping[str, Any], SegmentFunctions]] = []
        self._slices: list[Slice] = []
        self._branches: list[tuple[Segment, Mapping[str, Any]]] = []
        self._waiting_functions = self._waiting_calls = self._waiting_edges = 0
        # What segments add up to, and the functions that their sums are of.
        self._sums: list[tuple[Mapping[str, Any], SegmentFunctions]] = []
        # By segment: callers that were found when calls below them were written.
        self._late: dict[int, Callers] = {}

    def of(self, segment: Segment) -> SegmentRows:
        """Where the rows of a segment go while it is decoded."""
        return SegmentRows(self, segment)

    def add_functions(self, columns: Mapping[str, Any], functions: SegmentFunctions) -> None:
        """Functions that a segment names for the first time."""
        self._functions.append((columns, functions))
        self._waiting_functions += len(columns["address"])

    def add_calls(self, segment: Segment, calls: Mapping[str, Any], functions: SegmentFunctions) -> None:
        """Calls of a segment, which name its functions."""
        count = len(calls["flags"])
        if self._waiting_calls + count > _GROUP_ROWS:
            self._write_calls()
        self._waiting_calls += count
        self._slices.append(Slice(segment, calls, count, functions, self._context.timeline(segment)))

    def add_losses(self, segment: Segment, losses: Mapping[str, Any]) -> None:
        """What could not be decoded of a segment."""
        imported = self._context.archive.manifest.imported
        self._losses.write(loss_columns(losses, segment, self._clock, imported=imported))

    def add_totals(self, segment: Segment, decoded: Decoded, functions: SegmentFunctions) -> None:
        """What a segment adds up to."""
        self._sums.append((decoded.functions(), functions))
        self._branches.append((segment, decoded.edges()))
        self._waiting_edges += len(decoded.edges()["kind"])
        if self._waiting_edges >= _GROUP_ROWS:
            self._write_edges()
        self._add_of_code("accesses", segment, decoded.accesses(), functions)
        self._add_of_code("inlined", segment, decoded.inlined(), functions)
        if decoded.callers:
            self._late[segment.index] = decoded.callers
        if self._waiting_functions >= _GROUP_ROWS:
            self._settle()

    def finish(self) -> list[TablePart]:
        """All files, with all rows."""
        self._write_calls()
        self._write_edges()
        if self._late:
            self._calls = self._calls.rewritten(lambda calls: placed(calls, self._late))
        self._write_of_code()
        self._settle()
        return [self._calls, self._edges, self._accesses, self._inlined, self._losses]

    def function_totals(self) -> pa.Table:
        """The functions of the part, summed over its segments (`part_record.FUNCTIONS`)."""
        if not self._totals:
            return FUNCTIONS.empty_table()
        summed = _summed(pa.concat_tables(self._totals).group_by("at")).sort_by("at")
        keys = list(self._known)
        columns: dict[str, Any] = {
            "function": self._numbers(),
            "name": [key.name for key in keys],
            "module": [key.module for key in keys],
            "build_id": [self._context.build_ids.get(key.module, "") for key in keys],
            # Those of a kernel are beyond what Arrow takes a list of numbers for.
            "address": pa.array([key.address for key in keys], pa.uint64()),
            **self._described,
            **{name: summed[name] for name in _SUMMED},
        }
        return pa.table([columns[name] for name in FUNCTIONS.names], names=FUNCTIONS.names).cast(FUNCTIONS)

    def _settle(self) -> None:
        """Finds for the functions of all segments that wait which ones of the part they are."""
        if self._functions:
            columns = {name: self._gathered(name) for name in _KEY}
            codes = _codes([columns[name] for name in _KEY])
            row = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(codes)))
            table = pa.table({"code": codes, "row": row})
            found = table.group_by("code", use_threads=False).aggregate([("row", "min")])
            at = self._placed(columns, pc.subtract(found["row_min"].combine_chunks(), 1))
            places = at.take(pc.index_in(codes, value_set=found["code"].combine_chunks()))
            counts = [len(functions["address"]) for functions, _ in self._functions]
            for (_, known), count, end in zip(self._functions, counts, accumulate(counts), strict=True):
                known.add(places.slice(end - count, count))
            self._functions, self._waiting_functions = [], 0
        if self._sums:
            at = pa.concat_arrays([known.places for _, known in self._sums])
            sums = [primitive_array([columns[name] for columns, _ in self._sums]) for name in _SUMMED]
            told = pa.table([at, *sums], names=["at", *_SUMMED]).group_by("at", use_threads=False)
            self._totals.append(_summed(told))
            self._sums = []

    def _placed(self, columns: Mapping[str, pa.Array[Any]], rows: pa.Array[Any]) -> pa.Array[Any]:
        """The place among the functions of the part of each of those in `rows`."""
        keys = map(FunctionKey, *(columns[name].take(rows).to_pylist() for name in _KEY))
        before = len(self._known)
        places = pa.array([self._known.setdefault(key, len(self._known)) for key in keys], pa.int32())
        if len(self._known) > before:
            new = rows.filter(pc.greater_equal(places, before))
            for name in _DESCRIBED:
                self._described[name] += self._gathered(name).take(new).to_pylist()
        return places

    def _gathered(self, name: str) -> pa.Array[Any]:
        """A column of the functions of all segments that wait."""
        pieces = [functions[name] for functions, _ in self._functions]
        return text_array(pieces) if name in _TEXT else primitive_array(pieces)

    def _numbers(self) -> pa.Array[Any]:
        return pa.array([numbered(key, self._moved) for key in self._known], pa.int32())

    def _write_calls(self) -> None:
        if not self._slices:
            return
        self._settle()
        functions = FunctionColumns(
            number=self._numbers(),
            name=pa.array([key.name for key in self._known], pa.string()),
            file=pa.array(self._described["file"], pa.string()),
            line=pa.array(self._described["line"], pa.int32()),
        )
        self._calls.write(call_columns(self._slices, self._clock, functions))
        self._slices, self._waiting_calls = [], 0

    def _add_of_code(
        self, table: str, segment: Segment, columns: Mapping[str, Any], functions: SegmentFunctions
    ) -> None:
        if rows := len(columns["function"]):
            self._of_code[table].append((segment, columns, functions))
            self._waiting_of_code += rows
        if self._waiting_of_code >= _GROUP_ROWS:
            self._write_of_code()

    def _write_of_code(self) -> None:
        if not self._waiting_of_code:
            return
        self._settle()
        numbers = self._numbers()
        if self._of_code["accesses"]:
            self._accesses.write(access_columns(self._of_code["accesses"], numbers))
        if self._of_code["inlined"]:
            self._inlined.write(inlined_columns(self._of_code["inlined"], numbers))
        self._of_code, self._waiting_of_code = {"accesses": [], "inlined": []}, 0

    def _write_edges(self) -> None:
        if self._branches:
            self._edges.write(edge_columns(self._branches))
        self._branches, self._waiting_edges = [], 0


def _codes(columns: list[pa.Array[Any]]) -> pa.Array[Any]:
    """One number for each row: equal where all columns are."""
    codes: pa.Array[Any] = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0]))
    for column in columns:
        encoded: Any = column.dictionary_encode()
        codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
    return codes


def _summed(told: Any) -> pa.Table:
    found = told.aggregate([(name, "sum") for name in _SUMMED])
    return cast("pa.Table", found.rename_columns([name.removesuffix("_sum") for name in found.column_names]))


class SegmentRows:
    """Rows of one segment on their way to those of its part."""

    def __init__(self, part: PartRows, segment: Segment) -> None:
        self._part = part
        self._segment = segment
        self._functions = SegmentFunctions()

    def add(self, calls: Columns, functions: Columns, losses: Columns) -> None:
        """A batch as ptcore hands it out."""
        if len(functions["address"]):
            self._part.add_functions(functions, self._functions)
        if len(calls["flags"]):
            self._part.add_calls(self._segment, calls, self._functions)
        if len(losses["offset"]):
            self._part.add_losses(self._segment, losses)

    def finish(self, decoded: Decoded) -> None:
        """When all of the segment was decoded."""
        self._part.add_totals(self._segment, decoded, self._functions)
