"""The functions of a part: those of its segments, each once, with their sums."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from permille.decoder.domain.function_numbers import FunctionKey, numbered
from permille.decoder.domain.part_record import FUNCTIONS
from permille.decoder.domain.ptcore_columns import primitive_array, text_array
from permille.ptcore import Column, Functions

_TEXT = ("name", "module", "symbol_status", "file")


@dataclass
class SegmentFunctions:
    """Of which function of the part each of a segment's functions is; known when the functions have settled."""

    places: array[int] = field(default_factory=lambda: array("i"))

    def add(self, places: Column) -> None:
        """Those of functions that were told later."""
        self.places.frombytes(memoryview(places).cast("B"))


class PartFunctions:
    """`moved`: functions with another number than their own."""

    def __init__(self, moved: Mapping[FunctionKey, int]) -> None:
        self._moved = moved
        self._functions = Functions()
        self._numbers = array("i")
        # Told, but not settled: functions, and what segments add up to, with the blocks that ran in them.
        self._waiting: list[tuple[Mapping[str, Any], SegmentFunctions]] = []
        self._sums: list[tuple[Mapping[str, Any], Mapping[str, Column], SegmentFunctions]] = []
        self.waiting = 0

    def add(self, columns: Mapping[str, Any], functions: SegmentFunctions) -> None:
        """Functions that a segment names for the first time."""
        self._waiting.append((columns, functions))
        self.waiting += len(columns["address"])

    def add_totals(self, columns: Mapping[str, Any], blocks: Mapping[str, Column], functions: SegmentFunctions) -> None:
        """What the functions of a segment add up to, and which blocks of them ran."""
        self._sums.append((columns, blocks, functions))
        self.waiting += len(blocks["address"])

    def settle(self) -> None:
        """Finds for the functions of all segments that wait which ones of the part they are."""
        for columns, functions in self._waiting:
            functions.add(self._functions.add(columns))
        for sums, blocks, functions in self._sums:
            self._functions.add_totals(functions.places, sums, blocks)
        self._waiting, self._sums, self.waiting = [], [], 0

    @property
    def numbers(self) -> array[int]:
        """In the session, by their place in the part."""
        new = self._functions.keys(len(self._numbers))
        self._numbers.extend(numbered(FunctionKey(*key), self._moved) for key in new)
        return self._numbers

    def told(self, places: Iterable[int]) -> tuple[list[int], list[str], list[str], list[int]]:
        """What each call repeats of its function: numbers, names, files, lines of the functions at `places`."""
        numbers, listed = self.numbers, list(places)
        return [numbers[place] for place in listed], *self._functions.told(listed)

    def totals(self, build_ids: Mapping[str, str]) -> pa.Table:
        """All of them, settled, summed over the segments (`part_record.FUNCTIONS`). `build_ids`: by module."""
        told: dict[str, Any] = self._functions.columns()
        columns = {name: text_array([column]) for name, column in told.items() if name in _TEXT}
        columns |= {name: primitive_array([column]) for name, column in told.items() if name not in _TEXT}
        modules: list[Any] = columns["module"].to_pylist()
        begins: Any = columns["block_begins"].cast(pa.int32())
        columns |= {
            "function": primitive_array([self.numbers]),
            "build_id": pa.array([build_ids.get(module, "") for module in modules], pa.string()),
            "blocks": pa.ListArray.from_arrays(begins, columns["blocks"]),
        }
        return pa.table([columns[name] for name in FUNCTIONS.names], names=FUNCTIONS.names).cast(FUNCTIONS)
