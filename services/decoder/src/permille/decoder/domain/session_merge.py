"""Puts the parts of one decoded session together: its functions, its segments, its losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.block_counts import block_counts
from permille.decoder.domain.function_numbers import FunctionKey, are_parted, numbered, renumbered
from permille.decoder.domain.manifest import Manifest, Segment
from permille.decoder.domain.module_builds import paths_of
from permille.decoder.domain.part_record import FUNCTIONS, DecodedSegment, LostSegment, PartRecord
from permille.decoder.domain.ptcore_columns import whole
from permille.decoder.domain.segment_rows import whole_ns
from permille.decoder.domain.session_losses import session_losses
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import TableFile
from permille.ptcore import Categories

pc: Any = pyarrow.compute

_SUMMED = ("calls", "self_instructions", "total_instructions", "self_ticks", "total_ticks")
_FIRST = ("name", "module", "build_id", "address", "size", "symbol_status", "file", "line", "block_count")


@dataclass
class SessionMerge:
    """Gathers the records of the parts; a part that is done again takes the place of the one before."""

    manifest: Manifest
    categories: Categories
    _records: dict[frozenset[int], PartRecord] = field(default_factory=dict)
    _lost: dict[int, LostSegment] = field(default_factory=dict)
    # By index, the segments of either: a session has thousands.
    _known: set[int] = field(default_factory=set)

    def add(self, record: PartRecord) -> None:
        """A decoded part."""
        self._records[frozenset(record.segments)] = record
        self._known |= record.segments

    def lose(self, segment: Segment, reason: str, knob: str) -> None:
        """A segment that could not be decoded at all."""
        self._lost[segment.index] = LostSegment(segment.index, reason, knob)
        self._known.add(segment.index)

    def knows(self, segment: Segment) -> bool:
        """It is decoded or lost."""
        return segment.index in self._known

    def overlaps(self, record: PartRecord) -> bool:
        """One of its segments is decoded or lost already."""
        return not self._known.isdisjoint(record.segments)

    def renumbered(self) -> tuple[dict[FunctionKey, int], list[tuple[int, ...]]]:
        """Functions that need another number, because two have the same, and the segments of the parts that are to be
        decoded with these numbers.
        """
        if are_parted(chain.from_iterable(map(_numbers, self._records.values()))):
            return {}, []
        moved = renumbered(key for record in self._records.values() for key, _ in _numbers(record))
        parts = [
            tuple(sorted(segments))
            for segments, record in self._records.items()
            if any(numbered(key, moved) != number for key, number in _numbers(record))
        ]
        return moved, parts

    def files(self, table: str) -> list[TableFile]:
        """What the workers put into the table."""
        return [file for record in self._records.values() for file in record.files.get(table, ())]

    @property
    def function_count(self) -> int:
        """How many functions ran."""
        numbers = [column for record in self._records.values() for column in record.functions["function"].chunks]
        return int(pc.count_distinct(pa.chunked_array(numbers, pa.int32())).as_py())

    def total(self, counter: str) -> int:
        """The sum of one of ptcore's counters."""
        return sum(segment.stats.get(counter, 0) for segment in self._decoded().values())

    @property
    def call_count(self) -> int:
        """Over all segments."""
        return sum(segment.calls for segment in self._decoded().values())

    @property
    def lost_bytes(self) -> int:
        """Recorded nowhere or undecodable, over all segments."""
        decoded = self._decoded()
        return sum(_lost_bytes(segment, decoded.get(segment.index)) for segment in self.manifest.segments)

    @property
    def unrecorded_bytes(self) -> int:
        """Those of them that were recorded nowhere, as far as the recorder counted them."""
        return sum(segment.lost_bytes for segment in self.manifest.segments)

    def all_lost(self) -> dict[int, LostSegment]:
        """The segments of which nothing could be decoded, by index."""
        told = {segment.index: segment for record in self._records.values() for segment in record.lost}
        return told | self._lost

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows that only the whole session knows, by table, but for that of `sessions`."""
        yield "segments", _rows("segments", self._segment_rows())
        yield "functions", self._function_rows()
        losses = session_losses(self.manifest, self.all_lost(), self._notes(), self.unrecorded_bytes)
        yield "losses", _rows("losses", (self._common() | loss for loss in losses))

    def session_row(self) -> pa.RecordBatch:
        """That of `sessions`."""
        return _rows("sessions", [self._session_row()])

    def _functions(self) -> pa.Table:
        """Each once, with the basic blocks of it that ran, `block_count`."""
        tables = [record.functions for record in self._records.values() if record.functions.num_rows]
        if not tables:
            return FUNCTIONS.empty_table()
        told = pa.concat_tables(tables)
        told = told.append_column("block_count", block_counts(told)).drop_columns("blocks")
        if len(tables) == 1:
            # A part tells of a function once.
            return told
        together = told.group_by("function", use_threads=False)
        found = together.aggregate([(name, "sum") for name in _SUMMED] + [(name, "first") for name in _FIRST])
        return found.rename_columns(["function", *_SUMMED, *_FIRST])

    def _function_rows(self) -> pa.RecordBatch:
        found = self._functions()
        if not found.num_rows:
            return _rows("functions", [])
        scale = self.manifest.clock.ns_per_tick
        columns: dict[str, Any] = {name: whole(found[name]) for name in ("function", *_SUMMED, *_FIRST)}
        columns["module"] = paths_of(columns["module"])
        columns["address"] = columns["address"].view(pa.int64())
        columns["size_bytes"], columns["blocks"] = columns["size"], columns["block_count"]
        columns["category"] = pa.array(self.categories.of(columns["name"].to_pylist(), columns["module"].to_pylist()))
        ticks = "instructions" if self.manifest.timeless else "ticks"
        for name in ("self", "total"):
            # Of damaged times there may be more than a double tells exactly.
            elapsed = columns[f"{name}_{ticks}"].cast(pa.float64(), safe=False)
            columns[f"{name}_ns"] = whole_ns(pc.multiply(elapsed, scale))
        for name, value in self._common().items():
            columns[name] = pa.repeat(pa.scalar(value), found.num_rows)
        schema = SCHEMAS["functions"]
        return pa.record_batch([columns[column.name].cast(column.type) for column in schema], schema=schema)

    def _notes(self) -> list[str]:
        told = (note for record in self._records.values() for note in record.notes)
        return list(dict.fromkeys([*self.manifest.notes, *told]))

    def _decoded(self) -> dict[int, DecodedSegment]:
        return {segment.index: segment for record in self._records.values() for segment in record.decoded}

    def _segment_rows(self) -> Iterator[dict[str, Any]]:
        clock, decoded = self.manifest.clock, self._decoded()
        for segment in self.manifest.segments:
            result = decoded.get(segment.index)
            stats = result.stats if result else {}
            yield self._common() | {
                "segment": segment.index,
                "pid": segment.pid,
                "tid": segment.tid,
                "thread": segment.thread_name,
                "core": segment.core,
                # Of a core's, what is whose is known when it is decoded.
                "size_bytes": stats.get("size_bytes", segment.size_bytes),
                "stored_bytes": segment.stored_bytes,
                "lost_bytes": _lost_bytes(segment, result),
                "buffer_full": segment.full,
                "instructions": stats.get("instructions", 0),
                "branches": stats.get("conditional_branches", 0),
                "errors": stats.get("errors", 0) if result else 1,
                "first_ns": clock.ns(segment.first_tsc),
                "last_ns": clock.ns(segment.last_tsc),
                "psb": stats.get("psb", 0),
                "ovf": stats.get("ovf", 0),
                "decode_ms": round(result.decode_ms) if result else 0,
            }

    def _session_row(self) -> dict[str, Any]:
        manifest = self.manifest
        return self._common() | {
            "session": manifest.session,
            "node": manifest.node,
            "backend": manifest.backend,
            "purpose": manifest.purpose,
            "target": manifest.target.name,
            "start_ns": manifest.start_ns,
            "end_ns": manifest.end_ns,
            "period_ms": manifest.period_ms,
            "stop_reason": manifest.stop_reason,
            "segments": len(manifest.segments),
            "raw_bytes": sum(segment.size_bytes for segment in manifest.segments),
            "stored_bytes": sum(segment.stored_bytes for segment in manifest.segments),
            "lost_bytes": self.lost_bytes,
            "instructions": self.total("instructions"),
            "calls": self.call_count,
            "unrecorded_bytes": self.unrecorded_bytes,
        }

    def _common(self) -> dict[str, Any]:
        return {"session_id": self.manifest.session_id, "day": self.manifest.day}


def _numbers(record: PartRecord) -> Iterator[tuple[FunctionKey, int]]:
    keys = (record.functions[name].to_pylist() for name in ("module", "address", "name"))
    numbers: list[Any] = record.functions["function"].to_pylist()
    return zip(map(FunctionKey, *keys), numbers, strict=True)


def _lost_bytes(segment: Segment, decoded: DecodedSegment | None) -> int:
    return segment.lost_bytes + (decoded.stats.get("lost_bytes", 0) if decoded else segment.size_bytes)


def _rows(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMAS[table])
