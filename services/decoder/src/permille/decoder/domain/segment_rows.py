"""ptcore's columns of some segments in the words of the tables; small segments become rows together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.core_timeline import CoreTimeline
from permille.decoder.domain.knobs import decode_knob
from permille.decoder.domain.manifest import Clock, Segment
from permille.ptcore import INSTRUCTION_CLASSES

# Arrow's kernels are found at run time; their stubs know less than they take.
pc: Any = pyarrow.compute

Columns = dict[str, "pa.Array[Any]"]
_NO_PARENT = 0xFFFFFFFF
_NO_FUNCTION = 0xFFFFFFFF
_BEGIN_TRUNCATED, _END_TRUNCATED, _TAIL_CALL, _ASYNCHRONOUS, _UNWOUND = 1, 2, 4, 8, 16
# So many descents and the times are sorted rather than taken run by run.
_MOST_RUNS = 256
EDGE_KINDS = (
    "conditional taken",
    "conditional not taken",
    "jump",
    "indirect jump",
    "call",
    "indirect call",
    "return",
    "far",
)


@dataclass(frozen=True)
class Slice:
    """Rows `offset` and on of a segment's calls, with the functions' numbers among those of the part."""

    segment: Segment
    calls: pa.RecordBatch
    offset: int
    functions: pa.Array[Any]
    timeline: CoreTimeline


@dataclass(frozen=True)
class FunctionColumns:
    """The functions of a part: their numbers in the session, and what each call repeats of them."""

    number: pa.Array[Any]
    name: pa.Array[Any]
    file: pa.Array[Any]
    line: pa.Array[Any]


def call_columns(slices: Sequence[Slice], clock: Clock, functions: FunctionColumns) -> Columns:
    """The calls of all slices, in ptcore's order."""
    which = _which([part.calls.num_rows for part in slices])
    segments = [part.segment for part in slices]
    raw = pa.Table.from_batches([part.calls for part in slices]).combine_chunks()
    column = {name: _joined(raw[name]) for name in raw.column_names}
    function = _concatenated([part.functions.take(part.calls["function"]) for part in slices])
    parent = column["parent"].cast(pa.int64())
    first = _of_segment([segment.first_tsc or clock.tsc0 for segment in segments], which, pa.int64())
    return _origin(segments, which) | {
        "call": _counted(slices, which),
        "parent": pc.if_else(pc.equal(parent, _NO_PARENT), -1, parent),
        "start_ns": ns_of(column["start_tsc"], clock, first),
        "end_ns": ns_of(column["end_tsc"], clock, first),
        "depth": column["depth"].cast(pa.int32()),
        "core": _concatenated([cores(part.calls["start_tsc"], part.timeline) for part in slices]),
        "function": functions.number.take(function),
        "name": pa.DictionaryArray.from_arrays(function, functions.name),
        "file": pa.DictionaryArray.from_arrays(function, functions.file),
        "line": functions.line.take(function),
        "self_instructions": _signed(column["instructions"]),
        "total_instructions": _signed(column["instructions_total"]),
        "begin_truncated": _flag(column["flags"], _BEGIN_TRUNCATED),
        "end_truncated": _flag(column["flags"], _END_TRUNCATED | _UNWOUND),
        "tail_call": _flag(column["flags"], _TAIL_CALL),
        "asynchronous": _flag(column["flags"], _ASYNCHRONOUS),
    }


def edge_columns(edges: Sequence[tuple[Segment, pa.RecordBatch]]) -> Columns:
    """The branch edges with their counts."""
    which = _which([batch.num_rows for _, batch in edges])
    raw = pa.Table.from_batches([batch for _, batch in edges]).combine_chunks()
    kind = pa.DictionaryArray.from_arrays(_joined(raw["kind"]), pa.array(EDGE_KINDS, pa.string()))
    return {
        "segment": _of_segment([segment.index for segment, _ in edges], which),
        "from_address": _signed(_joined(raw["from"])),
        "to_address": _signed(_joined(raw["to"])),
        "kind": kind,
        "count": _signed(_joined(raw["count"])),
    }


def access_columns(accesses: Sequence[tuple[Segment, pa.RecordBatch, pa.Array[Any]]]) -> Columns:
    """Reads and writes of memory; with each segment the numbers of its functions in the session."""
    which = _which([batch.num_rows for _, batch, _ in accesses])
    raw = pa.Table.from_batches([batch for _, batch, _ in accesses]).combine_chunks()
    classes = pa.DictionaryArray.from_arrays(_joined(raw["class"]), pa.array(INSTRUCTION_CLASSES, pa.string()))
    return {
        "segment": _of_segment([segment.index for segment, _, _ in accesses], which),
        "function": _functions(accesses),
        "instruction_class": classes,
        "width_bytes": _joined(raw["width_bytes"]).cast(pa.int32()),
        "reads": _signed(_joined(raw["reads"])),
        "writes": _signed(_joined(raw["writes"])),
    }


def inlined_columns(inlined: Sequence[tuple[Segment, pa.RecordBatch, pa.Array[Any]]]) -> Columns:
    """Instructions of inlined functions; with each segment the numbers of its functions in the session."""
    which = _which([batch.num_rows for _, batch, _ in inlined])
    raw = pa.Table.from_batches([batch for _, batch, _ in inlined]).combine_chunks()
    return {
        "segment": _of_segment([segment.index for segment, _, _ in inlined], which),
        "function": _functions(inlined),
        "name": _joined(raw["name"]),
        "chain": _joined(raw["chain"]),
        "depth": _joined(raw["depth"]).cast(pa.int32()),
        "instructions": _signed(_joined(raw["instructions"])),
    }


def _functions(rows: Sequence[tuple[Segment, pa.RecordBatch, pa.Array[Any]]]) -> pa.Array[Any]:
    numbers = [
        numbers.take(pc.if_else(pc.equal(batch["function"], _NO_FUNCTION), None, batch["function"]))
        for _, batch, numbers in rows
    ]
    filled: pa.Array[Any] = pc.fill_null(_concatenated(numbers), -1)
    return filled


def loss_columns(losses: pa.RecordBatch, segment: Segment, clock: Clock) -> Columns:
    """What could not be decoded, with the setting that helps."""
    first = pa.scalar(segment.first_tsc or clock.tsc0, pa.int64())
    knobs = [decode_knob(str(reason)) for reason in losses["reason"].to_pylist()]
    return {
        "segment": _constant(segment.index, pa.int32(), losses.num_rows),
        "stream_offset": _signed(losses["offset"]),
        "size_bytes": _signed(losses["size_bytes"]),
        "start_ns": ns_of(losses["start_tsc"], clock, first),
        "end_ns": ns_of(losses["end_tsc"], clock, first),
        "reason": losses["reason"],
        "address": _signed(losses["address"]),
        "knob": pa.array(knobs, pa.string()),
    }


def ns_of(tsc: pa.Array[Any], clock: Clock, first_tsc: pa.Array[Any] | pa.Scalar[Any]) -> pa.Array[Any]:
    """Unix ns of TSC values on the manifest's line; 0 (before the first timing packet) is the segment's beginning."""
    ticks = _signed(tsc)
    known = pc.if_else(pc.equal(ticks, 0), first_tsc, ticks)
    # Differences within a session have at most 40 bits: exact as doubles.
    elapsed = pc.multiply(pc.subtract(known, clock.tsc0).cast(pa.float64()), clock.ns_per_tick)
    nanoseconds: pa.Array[Any] = pc.add(pc.round(elapsed).cast(pa.int64()), clock.ns0)
    return nanoseconds


def cores(starts: pa.Array[Any], timeline: CoreTimeline) -> pa.Array[Any]:
    """The core of each call. They begin one after the other, but for callers that were found late."""
    if not timeline.times or not len(starts):
        return _constant(timeline.cores[0], pa.int32(), len(starts))
    descents = pc.indices_nonzero(pc.less(starts[1:], starts[:-1])).to_pylist() if len(starts) > 1 else []
    if len(descents) > _MOST_RUNS:
        order = pc.sort_indices(starts)
        sorted_cores = pa.array(timeline.at(_numbers(starts.take(order))), pa.int32())
        return sorted_cores.take(pc.sort_indices(order))
    bounds = [0, *(descent + 1 for descent in descents), len(starts)]
    numbers = _numbers(starts)
    runs = [timeline.at(numbers[begin:end]) for begin, end in pairwise(bounds)]
    return _concatenated([pa.Array.from_buffers(pa.int32(), len(run), [None, pa.py_buffer(run)]) for run in runs])


def _origin(segments: Sequence[Segment], which: pa.Array[Any]) -> Columns:
    return {
        "segment": _of_segment([segment.index for segment in segments], which),
        "pid": _of_segment([segment.pid for segment in segments], which),
        "tid": _of_segment([segment.tid for segment in segments], which),
    }


def _which(rows: Sequence[int]) -> pa.Array[Any]:
    return _concatenated([_constant(number, pa.int32(), count) for number, count in enumerate(rows)])


def _of_segment(values: Sequence[int], which: pa.Array[Any], kind: pa.DataType | None = None) -> pa.Array[Any]:
    if len(values) == 1:
        return _constant(values[0], kind or pa.int32(), len(which))
    return pa.array(values, kind or pa.int32()).take(which)


def _counted(slices: Sequence[Slice], which: pa.Array[Any]) -> pa.Array[Any]:
    row, shifts = 0, []
    for part in slices:
        shifts.append(part.offset - row - 1)
        row += part.calls.num_rows
    counted: pa.Array[Any] = pc.cumulative_sum(_constant(1, pa.int64(), row))
    shifted: pa.Array[Any] = pc.add(counted, _of_segment(shifts, which, pa.int64()))
    return shifted


def _constant(value: int, kind: pa.DataType, rows: int) -> pa.Array[Any]:
    scalar: Any = pa.scalar(value, kind)
    return cast("pa.Array[Any]", pa.repeat(scalar, rows))


def _numbers(values: pa.Array[Any]) -> memoryview:
    data = values.buffers()[1]
    return memoryview(data or b"").cast("B").cast("Q")[values.offset : values.offset + len(values)]


def _flag(flags: pa.Array[Any], bit: int) -> pa.Array[Any]:
    masked = pc.bit_wise_and(flags, pa.scalar(bit, flags.type))
    result: pa.Array[Any] = pc.not_equal(masked, pa.scalar(0, flags.type))
    return result


def _signed(values: pa.Array[Any]) -> pa.Array[Any]:
    """The same 64 bits in a signed column."""
    return values.view(pa.int64()) if values.type == pa.uint64() else values.cast(pa.int64())


def _joined(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    joined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return cast("pa.Array[Any]", joined)


def _concatenated(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
