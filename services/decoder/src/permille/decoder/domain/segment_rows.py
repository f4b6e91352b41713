"""ptcore's columns of one segment in the words of the tables; function numbers are still the segment's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.core_timeline import CoreTimeline
from permille.decoder.domain.knobs import decode_knob
from permille.decoder.domain.manifest import Clock, Segment

# Arrow's kernels are found at run time; their stubs know less than they take.
pc: Any = pyarrow.compute

# Rows of one batch: bounds the memory of a worker beside ptcore's own.
_BATCH_ROWS = 1 << 18
_NO_PARENT = 0xFFFFFFFF
_BEGIN_TRUNCATED, _END_TRUNCATED, _TAIL_CALL, _ASYNCHRONOUS, _UNWOUND = 1, 2, 4, 8, 16
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


def call_batches(
    calls: pa.RecordBatch, segment: Segment, clock: Clock, timeline: CoreTimeline
) -> Iterator[pa.RecordBatch]:
    """The calls in ptcore's order, at least one batch."""
    for offset in range(0, max(calls.num_rows, 1), _BATCH_ROWS):
        part = calls.slice(offset, _BATCH_ROWS)
        rows = part.num_rows
        parent = part["parent"].cast(pa.int64())
        yield pa.record_batch(
            {
                "segment": _constant(segment.index, rows),
                "pid": _constant(segment.pid, rows),
                "tid": _constant(segment.tid, rows),
                "call": pa.array(range(offset, offset + rows), pa.int64()),
                "parent": pc.if_else(pc.equal(parent, _NO_PARENT), -1, parent),
                "start_ns": ns_of(part["start_tsc"], clock, segment),
                "end_ns": ns_of(part["end_tsc"], clock, segment),
                "depth": part["depth"].cast(pa.int32()),
                "core": _cores(part["start_tsc"], timeline),
                "function": part["function"].cast(pa.int32()),
                "self_instructions": _signed(part["instructions"]),
                "total_instructions": _signed(part["instructions_total"]),
                "begin_truncated": _flag(part["flags"], _BEGIN_TRUNCATED),
                "end_truncated": _flag(part["flags"], _END_TRUNCATED | _UNWOUND),
                "tail_call": _flag(part["flags"], _TAIL_CALL),
                "asynchronous": _flag(part["flags"], _ASYNCHRONOUS),
            }
        )


def edge_batch(edges: pa.RecordBatch, segment: Segment) -> pa.RecordBatch:
    """The branch edges with their counts."""
    kind: Any = edges["kind"]
    if not pa.types.is_string(kind.type):
        kind = pa.array(EDGE_KINDS, pa.string()).take(kind)
    return pa.record_batch(
        {
            "segment": _constant(segment.index, edges.num_rows),
            "from_address": _signed(edges["from"]),
            "to_address": _signed(edges["to"]),
            "kind": kind,
            "count": _signed(edges["count"]),
        }
    )


def loss_batch(losses: pa.RecordBatch, segment: Segment, clock: Clock) -> pa.RecordBatch:
    """What could not be decoded, with the setting that helps."""
    knobs = [decode_knob(str(reason)) for reason in losses["reason"].to_pylist()]
    return pa.record_batch(
        {
            "segment": _constant(segment.index, losses.num_rows),
            "stream_offset": _signed(losses["offset"]),
            "size_bytes": _signed(losses["size_bytes"]),
            "start_ns": ns_of(losses["start_tsc"], clock, segment),
            "end_ns": ns_of(losses["end_tsc"], clock, segment),
            "reason": losses["reason"],
            "address": _signed(losses["address"]),
            "knob": pa.array(knobs, pa.string()),
        }
    )


def ns_of(tsc: pa.Array[Any], clock: Clock, segment: Segment) -> pa.Array[Any]:
    """Unix ns of TSC values on the manifest's line; 0 (before the first timing packet) is the segment's beginning."""
    ticks = _signed(tsc)
    known = pc.if_else(pc.equal(ticks, 0), segment.first_tsc or clock.tsc0, ticks)
    # Differences within a session have at most 40 bits: exact as doubles.
    elapsed = pc.multiply(pc.subtract(known, clock.tsc0).cast(pa.float64()), clock.ns_per_tick)
    nanoseconds: pa.Array[Any] = pc.add(pc.round(elapsed).cast(pa.int64()), clock.ns0)
    return nanoseconds


def _cores(starts: pa.Array[Any], timeline: CoreTimeline) -> pa.Array[Any]:
    if not timeline.times:
        return _constant(timeline.cores[0], len(starts))
    order = None if _ascending(starts) else pc.sort_indices(starts)
    ordered = starts if order is None else starts.take(order)
    cores = pa.array(timeline.at(_numbers(ordered)), pa.int32())
    return cores if order is None else cores.take(pc.sort_indices(order))


def _numbers(values: pa.Array[Any]) -> memoryview:
    data = values.buffers()[1]
    return memoryview(data or b"").cast("B").cast("Q")[values.offset : values.offset + len(values)]


def _ascending(values: pa.Array[Any]) -> bool:
    return len(values) < 2 or bool(pc.all(pc.less_equal(values[:-1], values[1:])).as_py())


def _flag(flags: pa.Array[Any], bit: int) -> pa.Array[Any]:
    masked = pc.bit_wise_and(flags.cast(pa.uint32()), pa.scalar(bit, pa.uint32()))
    result: pa.Array[Any] = pc.not_equal(masked, pa.scalar(0, pa.uint32()))
    return result


def _signed(values: pa.Array[Any]) -> pa.Array[Any]:
    """The same 64 bits in a signed column."""
    return values.view(pa.int64()) if values.type == pa.uint64() else values.cast(pa.int64())


def _constant(value: int, rows: int) -> pa.Array[Any]:
    return pa.array([value], pa.int32()).take(pa.nulls(rows, pa.int32()).fill_null(0))
