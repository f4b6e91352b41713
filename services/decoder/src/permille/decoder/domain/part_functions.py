"""The functions of a part: those of its segments, each once, with their sums."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.function_numbers import FunctionKey, numbered
from permille.decoder.domain.part_record import FUNCTIONS
from permille.decoder.domain.ptcore_columns import primitive_array, text_array
from permille.ptcore import Blocks, Column

pc: Any = pyarrow.compute

_SUMMED = ("calls", "self_instructions", "total_instructions", "self_ticks", "total_ticks")
_DESCRIBED = ("size", "symbol_status", "file", "line")
_KEY = ("binary", "address", "name")
_TEXT = ("binary", "name", "symbol_status", "file")


@dataclass
class SegmentFunctions:
    """Of which function of the part each of a segment's functions is; known when the functions have settled."""

    places: pa.Array[Any] = field(default_factory=lambda: pa.array([], pa.int32()))

    def add(self, places: pa.Array[Any]) -> None:
        """Those of functions that were told later."""
        self.places = pa.concat_arrays([self.places, places]) if len(self.places) else places

    def buffer(self) -> memoryview:
        """The places as numbers."""
        data = memoryview(self.places.buffers()[1] or b"").cast("B").cast("i")
        return data[self.places.offset : self.places.offset + len(self.places)]


class PartFunctions:
    """`moved`: functions with another number than their own."""

    def __init__(self, moved: Mapping[FunctionKey, int]) -> None:
        self._moved = moved
        self._places: dict[FunctionKey, int] = {}
        self._numbers = array("i")
        self._names: list[str] = []
        self._described: dict[str, list[Any]] = {name: [] for name in _DESCRIBED}
        self._totals: list[pa.Table] = []
        # Told, but not settled.
        self._waiting: list[tuple[Mapping[str, Any], SegmentFunctions]] = []
        self.waiting = 0
        # What segments add up to, and the functions that their sums are of; the blocks that ran in them.
        self._sums: list[tuple[Mapping[str, Any], SegmentFunctions]] = []
        self._ran: list[tuple[Mapping[str, Column], SegmentFunctions]] = []
        self._blocks = Blocks()

    def add(self, columns: Mapping[str, Any], functions: SegmentFunctions) -> None:
        """Functions that a segment names for the first time."""
        self._waiting.append((columns, functions))
        self.waiting += len(columns["address"])

    def add_totals(self, columns: Mapping[str, Any], blocks: Mapping[str, Column], functions: SegmentFunctions) -> None:
        """What the functions of a segment add up to, and which blocks of them ran."""
        self._sums.append((columns, functions))
        self._ran.append((blocks, functions))
        self.waiting += len(blocks["address"])

    @property
    def numbers(self) -> pa.Array[Any]:
        """In the session, by their place in the part."""
        return pa.array(self._numbers, pa.int32())

    def told(self, places: Iterable[int]) -> tuple[list[int], list[str], list[str], list[int]]:
        """What each call repeats of its function: numbers, names, files, lines of the functions at `places`."""
        numbers, names, files, lines = self._numbers, self._names, self._described["file"], self._described["line"]
        listed = list(places)
        return (
            [numbers[place] for place in listed],
            [names[place] for place in listed],
            [files[place] for place in listed],
            [lines[place] for place in listed],
        )

    def settle(self) -> None:
        """Finds for the functions of all segments that wait which ones of the part they are."""
        if self._waiting:
            columns = {name: self._gathered(name) for name in _KEY}
            codes = _codes([columns[name] for name in _KEY])
            row = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(codes)))
            table = pa.table({"code": codes, "row": row})
            found = table.group_by("code", use_threads=False).aggregate([("row", "min")])
            at = self._placed(columns, pc.subtract(found["row_min"].combine_chunks(), 1))
            places = at.take(pc.index_in(codes, value_set=found["code"].combine_chunks()))
            counts = [len(functions["address"]) for functions, _ in self._waiting]
            for (_, known), count, end in zip(self._waiting, counts, accumulate(counts), strict=True):
                known.add(places.slice(end - count, count))
            self._waiting = []
        if self._sums:
            at = pa.concat_arrays([known.places for _, known in self._sums])
            sums = [primitive_array([columns[name] for columns, _ in self._sums]) for name in _SUMMED]
            told = pa.table([at, *sums], names=["at", *_SUMMED]).group_by("at", use_threads=False)
            self._totals.append(_summed(told))
            self._sums = []
        for blocks, known in self._ran:
            self._blocks.add(known.buffer(), blocks["function"], blocks["address"])
        self._ran, self.waiting = [], 0

    def totals(self, build_ids: Mapping[str, str]) -> pa.Table:
        """All of them, settled, summed over the segments (`part_record.FUNCTIONS`). `build_ids`: by module."""
        if not self._totals:
            return FUNCTIONS.empty_table()
        summed = _summed(pa.concat_tables(self._totals).group_by("at", use_threads=False)).sort_by("at")
        keys = list(self._places)
        columns: dict[str, Any] = {
            "function": self.numbers,
            "name": self._names,
            "module": [key.module for key in keys],
            "build_id": [build_ids.get(key.module, "") for key in keys],
            # Those of a kernel are beyond what Arrow takes a list of numbers for.
            "address": pa.array([key.address for key in keys], pa.uint64()),
            "blocks": self._blocks_of(len(keys)),
            **self._described,
            **{name: summed[name] for name in _SUMMED},
        }
        return pa.table([columns[name] for name in FUNCTIONS.names], names=FUNCTIONS.names).cast(FUNCTIONS)

    def _blocks_of(self, functions: int) -> Any:
        begins, addresses = (primitive_array([column]) for column in self._blocks.of(functions))
        offsets: Any = begins.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, addresses)

    def _placed(self, columns: Mapping[str, pa.Array[Any]], rows: pa.Array[Any]) -> pa.Array[Any]:
        """The place among the functions of the part of each of those in `rows`."""
        keys = map(FunctionKey, *(columns[name].take(rows).to_pylist() for name in _KEY))
        before = len(self._places)
        places = pa.array([self._place(key) for key in keys], pa.int32())
        if len(self._places) > before:
            new = rows.filter(pc.greater_equal(places, before))
            for name in _DESCRIBED:
                self._described[name] += self._gathered(name).take(new).to_pylist()
        return places

    def _place(self, key: FunctionKey) -> int:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._names)
            self._names.append(key.name)
            self._numbers.append(numbered(key, self._moved))
        return place

    def _gathered(self, name: str) -> pa.Array[Any]:
        """A column of the functions of all segments that wait."""
        pieces = [functions[name] for functions, _ in self._waiting]
        return text_array(pieces) if name in _TEXT else primitive_array(pieces)


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
