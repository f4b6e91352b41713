"""Gathers what ptcore made of the segments of a part and writes it to one file for each table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from permille.decoder.domain.calls_part import CallsPart, Slice
from permille.decoder.domain.function_numbers import FunctionKey
from permille.decoder.domain.loss_turns import CoreTurns, LossPiece, divided
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.part_functions import PartFunctions, SegmentFunctions
from permille.decoder.domain.ptcore_columns import numbers_of, primitive_array
from permille.decoder.domain.segment_rows import access_columns, edge_columns, inlined_columns, loss_columns, placed
from permille.decoder.domain.session_context import SessionContext
from permille.decoder.domain.table_part import TablePart, WrittenPart
from permille.ptcore import Callers, Decoded

if TYPE_CHECKING:
    from permille.ptcore._ptcore import Columns

# Rows of one row group: bounds the memory of a worker.
_GROUP_ROWS = 1 << 18
# Calls are encoded when there are so many, which a batch of a long segment has: its columns are filled again then.
# Those of small segments wait for others: what is decoded next finds its code in the cache.
_ENCODED_AT_ONCE = 1 << 15


class PartRows:
    """Rows go to temporary files in `folder`. `moved`: functions with another number than their own.

    `wanted`: called for each batch; what it raises ends the decoding of the part.
    """

    def __init__(
        self, context: SessionContext, folder: Path, moved: dict[FunctionKey, int], wanted: Callable[[], None]
    ) -> None:
        self._context = context
        self.require_wanted = wanted
        self._clock = context.archive.manifest.clock
        self._functions = PartFunctions(moved)
        self._calls = CallsPart(folder, self._functions)
        self._edges, self._losses = TablePart("edges", folder), TablePart("losses", folder)
        self._accesses, self._inlined = TablePart("accesses", folder), TablePart("inlined", folder)
        self._of_code: dict[str, list[tuple[Segment, Mapping[str, Any], SegmentFunctions]]] = {
            "accesses": [],
            "inlined": [],
        }
        self._waiting_of_code = 0
        # Of segments whose rows are not written yet.
        self._slices: list[Slice] = []
        self._branches: list[tuple[Segment, Mapping[str, Any]]] = []
        self._waiting_calls = self._waiting_edges = 0
        # Threads of the core hand out rows at the same time.
        self.one_by_one = threading.Lock()
        # By segment: callers that were found when calls below them were written.
        self._late: dict[int, Callers] = {}

    def of(
        self,
        segment: Segment,
        cores: Mapping[int, Segment] | None = None,
        turns: Mapping[int, CoreTurns] | None = None,
    ) -> SegmentRows:
        """Where the rows of a segment go while it is decoded.

        `cores`: the thread's segments by core, where it is decoded with all of them; the losses are theirs, as far as
        `turns` (by core) do not say that others ran meanwhile.
        """
        return SegmentRows(self, segment, cores or {}, {} if turns is None else turns)

    def add_functions(self, columns: Mapping[str, Any], functions: SegmentFunctions) -> None:
        """Functions that a segment names for the first time."""
        self._functions.add(columns, functions)

    def add_calls(
        self, segment: Segment, calls: Mapping[str, Any], functions: SegmentFunctions, *, all_cores: bool
    ) -> None:
        """Calls of a segment, which name its functions. `all_cores`: of all cores that its thread was on."""
        self._waiting_calls += len(calls["flags"])
        timeline = self._context.timeline(segment, all_cores=all_cores)
        self._slices.append(Slice(segment, calls, functions, timeline))
        if self._waiting_calls >= _ENCODED_AT_ONCE:
            self._encode_calls()

    def add_losses(
        self, segments: Sequence[Segment], losses: Mapping[str, Any], pieces: Sequence[LossPiece] = ()
    ) -> None:
        """What could not be decoded, each of a segment; or in pieces, of which others have some."""
        imported = self._context.archive.manifest.imported
        rows = loss_columns(losses, segments, self._clock, imported=imported)
        self._losses.write(divided(rows, pieces) if len(pieces) > len(segments) else rows)

    def add_totals(self, segment: Segment, decoded: Decoded, functions: SegmentFunctions) -> None:
        """What a segment adds up to."""
        self._functions.add_totals(decoded.functions(), decoded.blocks(), functions)
        self._branches.append((segment, decoded.edges()))
        self._waiting_edges += len(decoded.edges()["kind"])
        if self._waiting_edges >= _GROUP_ROWS:
            self._write_edges()
        self._add_of_code("accesses", segment, decoded.accesses(), functions)
        self._add_of_code("inlined", segment, decoded.inlined(), functions)
        if decoded.callers:
            self._late[segment.index] = decoded.callers
        if self._functions.waiting >= _GROUP_ROWS:
            self._functions.settle()

    def finish(self) -> list[WrittenPart]:
        """A file for each table that has rows."""
        self._encode_calls()
        self._write_edges()
        self._write_of_code()
        self._functions.settle()
        calls = self._calls.rewritten(lambda rows: placed(rows, self._late)) if self._late else self._calls
        parts = (calls, self._edges, self._accesses, self._inlined, self._losses)
        return [part.finish() for part in parts if part.rows]

    def function_totals(self) -> pa.Table:
        """The functions of the part, summed over its segments (`part_record.FUNCTIONS`)."""
        return self._functions.totals(self._context.build_ids)

    def _encode_calls(self) -> None:
        self._functions.settle()
        for part in self._slices:
            self._calls.add(part, self._clock)
        if self._calls.waiting >= _GROUP_ROWS:
            self._calls.write_group()
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
        self._functions.settle()
        numbers = primitive_array([self._functions.numbers])
        if self._of_code["accesses"]:
            self._accesses.write(access_columns(self._of_code["accesses"], numbers))
        if self._of_code["inlined"]:
            self._inlined.write(inlined_columns(self._of_code["inlined"], numbers))
        self._of_code, self._waiting_of_code = {"accesses": [], "inlined": []}, 0

    def _write_edges(self) -> None:
        if self._branches:
            self._edges.write(edge_columns(self._branches))
        self._branches, self._waiting_edges = [], 0


class SegmentRows:
    """Rows of one segment on their way to those of its part."""

    def __init__(
        self, part: PartRows, segment: Segment, cores: Mapping[int, Segment], turns: Mapping[int, CoreTurns]
    ) -> None:
        self._part = part
        self._segment = segment
        self._cores = cores
        self._turns = turns
        self._functions = SegmentFunctions()

    def add(self, calls: Columns, functions: Columns, losses: Columns) -> None:
        """A batch as ptcore hands it out, by any of its threads."""
        # It may ask the store: nobody else waits for that.
        self._part.require_wanted()
        with self._part.one_by_one:
            self._add(calls, functions, losses)

    def _add(self, calls: Columns, functions: Columns, losses: Columns) -> None:
        if len(functions["address"]):
            self._part.add_functions(functions, self._functions)
        if len(calls["flags"]):
            self._part.add_calls(self._segment, calls, self._functions, all_cores=len(self._cores) > 1)
        if len(losses["offset"]):
            cores = numbers_of(primitive_array([losses["core"]]), "I")
            segments = [self._cores.get(core, self._segment) for core in cores]
            self._part.add_losses(segments, losses, self._pieces(cores, segments, losses))

    def _pieces(self, cores: Sequence[int], segments: Sequence[Segment], losses: Columns) -> list[LossPiece]:
        offsets, sizes = (numbers_of(primitive_array([losses[name]]), "Q") for name in ("offset", "size_bytes"))
        found: list[LossPiece] = []
        for loss, core in enumerate(cores):
            if core not in self._turns or core not in self._cores:
                return []
            found += self._turns[core].pieces(loss, offsets[loss], sizes[loss], segments[loss])
        return found

    def finish(self, decoded: Decoded) -> None:
        """When all of the segment was decoded."""
        self._part.add_totals(self._segment, decoded, self._functions)
