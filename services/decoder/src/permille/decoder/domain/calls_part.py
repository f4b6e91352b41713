"""One file of the table `calls` while it is written: ptcore encodes its own columns, row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from permille.decoder.domain.core_timeline import CoreTimeline
from permille.decoder.domain.manifest import Clock, Segment
from permille.decoder.domain.part_functions import PartFunctions, SegmentFunctions
from permille.decoder.domain.scratch_file import ScratchFile
from permille.decoder.domain.table_part import COMPRESSION_LEVEL, TablePart, WrittenPart, stored_schema
from permille.ptcore import CallsFile

_TIMES = ("start_ns", "end_ns")


@dataclass(frozen=True)
class Slice:
    """Some of a segment's calls, in ptcore's columns."""

    segment: Segment
    calls: Mapping[str, Any]
    functions: SegmentFunctions
    timeline: CoreTimeline


class CallsPart:
    """Like `TablePart`, which knows nothing of what its columns are and takes three times as long."""

    table = "calls"

    def __init__(self, folder: Path, functions: PartFunctions) -> None:
        self._folder = folder
        self._functions = functions
        self._file = ScratchFile(folder)
        self._encoder = CallsFile(COMPRESSION_LEVEL)

    @property
    def rows(self) -> int:
        """Written or waiting."""
        return self._encoder.rows + self._encoder.waiting

    @property
    def waiting(self) -> int:
        """So many were added since the last row group."""
        return self._encoder.waiting

    def add(self, calls: Slice, clock: Clock) -> None:
        """Rows of the next row group; their functions have settled."""
        segment = calls.segment
        self._encoder.add(
            calls.calls,
            calls.functions.places,
            (segment.index, segment.pid, segment.tid),
            (segment.first_tsc or clock.tsc0, clock.tsc0, clock.ns0, clock.ns_per_tick),
            calls.timeline.buffers,
        )

    def write_group(self) -> None:
        """A row group of what was added."""
        if self.waiting:
            self._file.write(self._encoder.group(*self._functions.told(self._encoder.functions)))

    def rewritten(self, change: Callable[[pa.RecordBatch], dict[str, pa.Array[Any]]]) -> TablePart:
        """The same rows, changed row group by row group. Nothing more can be written into this one."""
        self.write_group()
        other = TablePart(self.table, self._folder)
        if self.rows:
            self._file.write(self._encoder.finish())
            text = [column.name for column in stored_schema(self.table) if pa.types.is_string(column.type)]
            with self._file.whole() as file:
                reader = pq.ParquetFile(file, read_dictionary=text)
                for group in range(reader.num_row_groups):
                    for batch in reader.read_row_group(group, use_threads=False).combine_chunks().to_batches():
                        other.write(change(batch))
        return other

    def finish(self) -> WrittenPart:
        """See `TablePart`."""
        self.write_group()
        self._file.write(self._encoder.finish())
        ranges = dict(zip(_TIMES, self._encoder.ranges or (), strict=False))
        return WrittenPart(self.table, self.rows, self._file.whole(), self._file.size_bytes, ranges)
