"""Gathers what ptcore made of the segments of a part and writes it to one file for each table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from permille.decoder.domain.core_timeline import CoreTimeline
from permille.decoder.domain.function_numbers import FunctionKey, numbered
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.part_record import FUNCTIONS
from permille.decoder.domain.ptcore_columns import arrow_batch
from permille.decoder.domain.segment_rows import (
    FunctionColumns,
    Slice,
    access_columns,
    call_columns,
    edge_columns,
    inlined_columns,
    loss_columns,
)
from permille.decoder.domain.session_context import SessionContext
from permille.decoder.domain.table_part import TablePart
from permille.ptcore import Decoded

# Rows of one row group: bounds the memory of a worker beside ptcore's own.
_GROUP_ROWS = 1 << 18
_SUMMED = ("calls", "self_instructions", "total_instructions", "self_ticks", "total_ticks")
_DESCRIBED = ("size", "symbol_status", "file", "line")


def _keys(functions: pa.RecordBatch) -> Iterator[FunctionKey]:
    columns: list[Any] = [functions[name].to_pylist() for name in ("binary", "address", "name")]
    return map(FunctionKey, *columns)


class PartRows:
    """Rows go to temporary files in `folder`. `moved`: functions with another number than their own."""

    def __init__(self, context: SessionContext, folder: Path, moved: dict[FunctionKey, int]) -> None:
        self._context = context
        self._clock = context.archive.manifest.clock
        self._moved = moved
        self._calls, self._edges, self._losses = (TablePart(name, folder) for name in ("calls", "edges", "losses"))
        self._accesses, self._inlined = TablePart("accesses", folder), TablePart("inlined", folder)
        self._of_code: dict[str, list[tuple[Segment, pa.RecordBatch, pa.Array[Any]]]] = {"accesses": [], "inlined": []}
        self._known: dict[FunctionKey, int] = {}
        self._described: dict[str, list[Any]] = {name: [] for name in _DESCRIBED}
        self._totals: list[pa.RecordBatch] = []
        self._slices: list[Slice] = []
        self._waiting_calls = self._waiting_edges = 0
        self._branches: list[tuple[Segment, pa.RecordBatch]] = []

    def add(self, segment: Segment, decoded: Decoded) -> None:
        """The rows of one segment."""
        functions = self._functions(arrow_batch(decoded.functions()))
        calls = arrow_batch(decoded.calls())
        timeline = self._context.timelines.get(segment.tid, CoreTimeline())
        for offset in range(0, calls.num_rows, _GROUP_ROWS):
            part = calls.slice(offset, _GROUP_ROWS)
            if self._waiting_calls + part.num_rows > _GROUP_ROWS:
                self._write_calls()
            self._waiting_calls += part.num_rows
            self._slices.append(Slice(segment, part, offset, functions, timeline))
        self._branches.append((segment, arrow_batch(decoded.edges())))
        self._waiting_edges += self._branches[-1][1].num_rows
        if self._waiting_edges >= _GROUP_ROWS:
            self._write_edges()
        self._add_of_code("accesses", segment, arrow_batch(decoded.accesses()), functions)
        self._add_of_code("inlined", segment, arrow_batch(decoded.inlined()), functions)
        losses = arrow_batch(decoded.losses())
        if losses.num_rows:
            self._losses.write(loss_columns(losses, segment, self._clock))

    def finish(self) -> list[TablePart]:
        """All files, with all rows."""
        self._write_calls()
        self._write_edges()
        self._write_of_code()
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
            "address": [key.address for key in keys],
            **self._described,
            **{name: summed[f"{name}_sum"] for name in _SUMMED},
        }
        return pa.table([columns[name] for name in FUNCTIONS.names], names=FUNCTIONS.names).cast(FUNCTIONS)

    def _functions(self, functions: pa.RecordBatch) -> pa.Array[Any]:
        """The place of each of a segment's functions among those of the part."""
        places: list[int] = []
        new: list[int] = []
        for row, key in enumerate(_keys(functions)):
            place = self._known.setdefault(key, len(self._known))
            places.append(place)
            if place == len(self._described["line"]) + len(new):
                new.append(row)
        for name in _DESCRIBED if new else ():
            self._described[name] += functions[name].take(pa.array(new, pa.int32())).to_pylist()
        at = pa.array(places, pa.int32())
        totals = [functions[name] for name in _SUMMED]
        self._totals.append(pa.record_batch([at, *totals], names=["at", *_SUMMED]))
        return at

    def _numbers(self) -> pa.Array[Any]:
        return pa.array([numbered(key, self._moved) for key in self._known], pa.int32())

    def _write_calls(self) -> None:
        if not self._slices:
            return
        functions = FunctionColumns(
            number=self._numbers(),
            name=pa.array([key.name for key in self._known], pa.string()),
            file=pa.array(self._described["file"], pa.string()),
            line=pa.array(self._described["line"], pa.int32()),
        )
        self._calls.write(call_columns(self._slices, self._clock, functions))
        self._slices, self._waiting_calls = [], 0

    def _add_of_code(self, table: str, segment: Segment, rows: pa.RecordBatch, functions: pa.Array[Any]) -> None:
        waiting = self._of_code[table]
        if rows.num_rows:
            waiting.append((segment, rows, self._numbers().take(functions)))
        if sum(batch.num_rows for _, batch, _ in waiting) >= _GROUP_ROWS:
            self._write_of_code()

    def _write_of_code(self) -> None:
        if self._of_code["accesses"]:
            self._accesses.write(access_columns(self._of_code["accesses"]))
        if self._of_code["inlined"]:
            self._inlined.write(inlined_columns(self._of_code["inlined"]))
        self._of_code = {"accesses": [], "inlined": []}

    def _write_edges(self) -> None:
        if self._branches:
            self._edges.write(edge_columns(self._branches))
        self._branches, self._waiting_edges = [], 0
