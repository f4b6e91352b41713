"""Gathers what ptcore made of the segments of a part and writes it to one file for each table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

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
    timed_by_instructions,
)
from permille.decoder.domain.session_context import SessionContext
from permille.decoder.domain.table_part import TablePart
from permille.ptcore import Decoded

pc: Any = pyarrow.compute

# Rows of one row group: bounds the memory of a worker beside ptcore's own.
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
        self._totals: list[pa.RecordBatch] = []
        # Of segments whose rows are not written yet.
        self._functions: list[tuple[Mapping[str, Any], SegmentFunctions]] = []
        self._slices: list[Slice] = []
        self._branches: list[tuple[Segment, Mapping[str, Any]]] = []
        self._waiting_functions = self._waiting_calls = self._waiting_edges = 0

    def add(self, segment: Segment, decoded: Decoded) -> None:
        """The rows of one segment."""
        functions = SegmentFunctions(pa.array([], pa.int32()))
        self._functions.append((decoded.functions(), functions))
        self._waiting_functions += len(decoded.functions()["address"])
        calls: Mapping[str, Any] = decoded.calls()
        if self._context.archive.manifest.timeless:
            calls = timed_by_instructions(calls)
        timeline = self._context.timeline(segment)
        total = len(calls["flags"])
        for offset in range(0, total, _GROUP_ROWS):
            count = min(_GROUP_ROWS, total - offset)
            if self._waiting_calls + count > _GROUP_ROWS:
                self._write_calls()
            self._waiting_calls += count
            self._slices.append(Slice(segment, calls, offset, count, functions, timeline))
        self._branches.append((segment, decoded.edges()))
        self._waiting_edges += len(decoded.edges()["kind"])
        if self._waiting_edges >= _GROUP_ROWS:
            self._write_edges()
        self._add_of_code("accesses", segment, decoded.accesses(), functions)
        self._add_of_code("inlined", segment, decoded.inlined(), functions)
        if self._waiting_functions >= _GROUP_ROWS:
            self._settle()
        if len(decoded.losses()["offset"]):
            imported = self._context.archive.manifest.imported
            self._losses.write(loss_columns(decoded.losses(), segment, self._clock, imported=imported))

    def finish(self) -> list[TablePart]:
        """All files, with all rows."""
        self._write_calls()
        self._write_edges()
        self._write_of_code()
        self._settle()
        return [self._calls, self._edges, self._accesses, self._inlined, self._losses]

    def function_totals(self) -> pa.Table:
        """The functions of the part, summed over its segments (`part_record.FUNCTIONS`)."""
        if not self._totals:
            return FUNCTIONS.empty_table()
        summed = pa.Table.from_batches(self._totals).group_by("at").aggregate([(name, "sum") for name in _SUMMED])
        summed = summed.sort_by("at")
        keys = list(self._known)
        columns: dict[str, Any] = {
            "function": self._numbers(),
            "name": [key.name for key in keys],
            "module": [key.module for key in keys],
            "build_id": [self._context.build_ids.get(key.module, "") for key in keys],
            # Those of a kernel are beyond what Arrow takes a list of numbers for.
            "address": pa.array([key.address for key in keys], pa.uint64()),
            **self._described,
            **{name: summed[f"{name}_sum"] for name in _SUMMED},
        }
        return pa.table([columns[name] for name in FUNCTIONS.names], names=FUNCTIONS.names).cast(FUNCTIONS)

    def _settle(self) -> None:
        """Finds for the functions of all segments that wait which ones of the part they are."""
        if not self._functions:
            return
        columns = {name: self._gathered(name) for name in (*_KEY, *_SUMMED)}
        codes = _codes([columns[name] for name in _KEY])
        row = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(codes)))
        table = pa.table({"code": codes, "row": row, **{name: columns[name] for name in _SUMMED}})
        sums: list[Any] = [("row", "min"), *((name, "sum") for name in _SUMMED)]
        found = table.group_by("code", use_threads=False).aggregate(sums)
        at = self._placed(columns, pc.subtract(found["row_min"].combine_chunks(), 1))
        totals = [found[f"{name}_sum"].combine_chunks() for name in _SUMMED]
        self._totals.append(pa.record_batch([at, *totals], names=["at", *_SUMMED]))
        places = at.take(pc.index_in(codes, value_set=found["code"].combine_chunks()))
        counts = [len(functions["address"]) for functions, _ in self._functions]
        for (_, known), count, end in zip(self._functions, counts, accumulate(counts), strict=True):
            known.places = places.slice(end - count, count)
        self._functions, self._waiting_functions = [], 0

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
