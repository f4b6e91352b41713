"""Segments to one session: one numbering of functions, and every table's rows, streamed from the segments' files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from permille.decoder.domain.knobs import buffer_knob
from permille.decoder.domain.manifest import Manifest, Segment
from permille.decoder.domain.segment_decoder import SegmentResult, read_rows
from permille.mesh.table_schemas import SCHEMAS

_ADDRESS_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class LostSegment:
    """A segment of which nothing could be decoded."""

    index: int
    reason: str
    knob: str


@dataclass
class Function:
    """One function of the session, summed over its segments; ticks are TSC."""

    name: str
    module: str
    address: int
    size_bytes: int
    symbol_status: str
    file: str
    line: int
    calls: int = 0
    self_instructions: int = 0
    total_instructions: int = 0
    self_ticks: int = 0
    total_ticks: int = 0


@dataclass
class SessionMerge:
    """Gathers results; `build_ids` by the name a binary was mapped under."""

    manifest: Manifest
    build_ids: Mapping[str, str]
    results: dict[int, SegmentResult] = field(default_factory=dict)
    lost: dict[int, LostSegment] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _functions: list[Function] = field(default_factory=list)
    _numbers: dict[tuple[str, int, str], int] = field(default_factory=dict)
    _of_segment: dict[int, list[int]] = field(default_factory=dict)

    def add(self, result: SegmentResult) -> None:
        """A decoded segment."""
        numbers: list[int] = []
        for batch in read_rows(result.functions):
            numbers += [self._number(row) for row in batch.to_pylist()]
        self._of_segment[result.index] = numbers
        self.results[result.index] = result

    def lose(self, segment: Segment, reason: str, knob: str) -> None:
        """A segment that could not be decoded at all."""
        self.lost[segment.index] = LostSegment(segment.index, reason, knob)

    @property
    def function_count(self) -> int:
        """How many functions ran."""
        return len(self._functions)

    def total(self, counter: str) -> int:
        """The sum of one of ptcore's counters."""
        return sum(result.stats.get(counter, 0) for result in self.results.values())

    @property
    def lost_bytes(self) -> int:
        """Recorded nowhere or undecodable, over all segments."""
        return sum(self._lost_bytes(segment) for segment in self.manifest.segments)

    def tables(self) -> Iterator[tuple[str, Iterable[pa.RecordBatch]]]:
        """Every table with its rows, `sessions` last."""
        yield "segments", [_rows("segments", self._segment_rows())]
        yield "functions", [_rows("functions", self._function_rows())]
        yield "calls", _Again(self._call_batches)
        yield "edges", _Again(lambda: self._spilled("edges"))
        yield "losses", _Again(self._loss_batches)
        yield "sessions", [_rows("sessions", [self._session_row()])]

    def _number(self, row: Mapping[str, Any]) -> int:
        key = (row["binary"], row["address"], row["name"])
        number = self._numbers.setdefault(key, len(self._functions))
        if number == len(self._functions):
            self._functions.append(
                Function(
                    name=row["name"],
                    module=row["binary"],
                    address=row["address"],
                    size_bytes=row["size"],
                    symbol_status=row["symbol_status"],
                    file=row["file"] or "",
                    line=row["line"],
                )
            )
        function = self._functions[number]
        function.calls += row["calls"]
        function.self_instructions += row["self_instructions"]
        function.total_instructions += row["total_instructions"]
        function.self_ticks += row["self_ticks"]
        function.total_ticks += row["total_ticks"]
        return number

    def _function_rows(self) -> Iterator[dict[str, Any]]:
        scale = self.manifest.clock.ns_per_tick
        for number, function in enumerate(self._functions):
            yield self._common() | {
                "function": number,
                "name": function.name,
                "module": function.module,
                "build_id": self.build_ids.get(function.module, ""),
                "address": _signed(function.address),
                "size_bytes": function.size_bytes,
                "symbol_status": function.symbol_status,
                "file": function.file,
                "line": function.line,
                "calls": function.calls,
                "self_instructions": function.self_instructions,
                "total_instructions": function.total_instructions,
                "self_ns": round(function.self_ticks * scale),
                "total_ns": round(function.total_ticks * scale),
            }

    def _call_batches(self) -> Iterator[pa.RecordBatch]:
        names = pa.array([function.name for function in self._functions], pa.string())
        files = pa.array([function.file for function in self._functions], pa.string())
        lines = pa.array([function.line for function in self._functions], pa.int32())
        for result in self._in_order():
            numbers = pa.array(self._of_segment[result.index], pa.int32())
            for batch in read_rows(result.calls):
                function = numbers.take(batch["function"])
                known: dict[str, pa.Array[Any]] = {
                    "function": function,
                    "name": names.take(function),
                    "file": files.take(function),
                    "line": lines.take(function),
                }
                yield self._whole("calls", batch, known)

    def _spilled(self, table: str) -> Iterator[pa.RecordBatch]:
        for result in self._in_order():
            for batch in read_rows(getattr(result, table)):
                yield self._whole(table, batch, {})

    def _loss_batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._spilled("losses")
        yield _rows("losses", self._other_losses())

    def _other_losses(self) -> Iterator[dict[str, Any]]:
        manifest, clock = self.manifest, self.manifest.clock
        buffers = sum(segment.buffer_bytes for segment in manifest.segments)
        recorded = sum(segment.size_bytes for segment in manifest.segments)
        unrecorded = sum(segment.lost_bytes for segment in manifest.segments)
        for segment in manifest.segments:
            if segment.lost_bytes or segment.lost_blocks or segment.full:
                yield self._loss(
                    segment.index,
                    offset=segment.size_bytes,
                    size_bytes=segment.lost_bytes,
                    start_ns=clock.ns(segment.last_tsc) or manifest.start_ns,
                    end_ns=manifest.end_ns,
                    reason=f"the buffer was full: {segment.lost_blocks:,} blocks were not recorded",
                    knob=buffer_knob(buffers, recorded, unrecorded),
                )
            lost = self.lost.get(segment.index)
            if lost is not None:
                yield self._loss(
                    segment.index,
                    offset=0,
                    size_bytes=segment.size_bytes,
                    start_ns=clock.ns(segment.first_tsc) or manifest.start_ns,
                    end_ns=clock.ns(segment.last_tsc) or manifest.end_ns,
                    reason=lost.reason,
                    knob=lost.knob,
                )
        for note in self.notes:
            yield self._loss(
                -1, offset=0, size_bytes=0, start_ns=manifest.start_ns, end_ns=manifest.end_ns, reason=note, knob=""
            )

    def _loss(
        self, segment: int, *, offset: int, size_bytes: int, start_ns: int, end_ns: int, reason: str, knob: str
    ) -> dict[str, Any]:
        return self._common() | {
            "segment": segment,
            "stream_offset": offset,
            "size_bytes": size_bytes,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "reason": reason,
            "address": 0,
            "knob": knob,
        }

    def _segment_rows(self) -> Iterator[dict[str, Any]]:
        clock = self.manifest.clock
        for segment in self.manifest.segments:
            result = self.results.get(segment.index)
            stats = result.stats if result else {}
            yield self._common() | {
                "segment": segment.index,
                "pid": segment.pid,
                "tid": segment.tid,
                "thread": segment.thread_name,
                "core": -1,
                "size_bytes": segment.size_bytes,
                "stored_bytes": segment.stored_bytes,
                "lost_bytes": self._lost_bytes(segment),
                "buffer_full": segment.full,
                "instructions": stats.get("instructions", 0),
                "branches": stats.get("conditional_branches", 0),
                "errors": stats.get("errors", 0) if result else 1,
                "first_ns": clock.ns(segment.first_tsc),
                "last_ns": clock.ns(segment.last_tsc),
                "psb": stats.get("psb", 0),
                "ovf": stats.get("ovf", 0),
                "decode_ms": result.decode_ms if result else 0,
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
            "calls": sum(result.call_count for result in self.results.values()),
        }

    def _lost_bytes(self, segment: Segment) -> int:
        result = self.results.get(segment.index)
        return segment.lost_bytes + (result.stats.get("lost_bytes", 0) if result else segment.size_bytes)

    def _common(self) -> dict[str, Any]:
        return {"session_id": self.manifest.session_id, "day": self.manifest.day}

    def _in_order(self) -> Sequence[SegmentResult]:
        return [self.results[index] for index in sorted(self.results)]

    def _whole(self, table: str, batch: pa.RecordBatch, known: Mapping[str, pa.Array[Any]]) -> pa.RecordBatch:
        schema = SCHEMAS[table]
        constants = self._common()
        columns = [
            known[field.name]
            if field.name in known
            else pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
            if field.name in constants
            else batch[field.name]
            for field in schema
        ]
        return pa.record_batch(columns, schema=schema)


@dataclass(frozen=True)
class _Again:
    """Batches that are made anew each time they are read: a commit may need several tries."""

    batches: Callable[[], Iterator[pa.RecordBatch]]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()


def _rows(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=SCHEMAS[table])


def _signed(address: int) -> int:
    address &= _ADDRESS_MASK
    return address - (1 << 64) if address >> 63 else address
