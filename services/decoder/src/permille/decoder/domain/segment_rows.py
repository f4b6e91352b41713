"""ptcore's columns of some segments in the words of the tables; small segments become rows together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
from permille.decoder.domain.knobs import decode_knob
from permille.decoder.domain.manifest import Clock, Segment
from permille.decoder.domain.part_functions import SegmentFunctions
from permille.decoder.domain.ptcore_columns import numbers_of, primitive_array, text_array
from permille.ptcore import INSTRUCTION_CLASSES, Callers

# Arrow's kernels are found at run time; their stubs know less than they take.
pc: Any = pyarrow.compute

Columns = dict[str, "pa.Array[Any]"]
_NO_FUNCTION = 0xFFFFFFFF
# The last double below 2^63.
_MOST_NS = float((1 << 63) - (1 << 10))
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


# Rows of a table by function and code, in ptcore's columns, with the functions of their segment.
OfCode = tuple[Segment, Mapping[str, Any], SegmentFunctions]


def placed(calls: pa.RecordBatch, late: Mapping[int, Callers]) -> Columns:
    """Rows of the table, with the parents and depths that they have in the end. `late`: by segment."""
    columns: Columns = {name: calls[name] for name in calls.schema.names}
    parents, depths, begin = [], [], 0
    segments = pc.run_end_encode(calls["segment"])
    for end, segment in zip(segments.run_ends.to_pylist(), segments.values.to_pylist(), strict=True):
        rows = calls.slice(begin, end - begin)
        parent, depth = rows["parent"], rows["depth"]
        if callers := late.get(segment):
            told = callers.place(numbers_of(rows["call"], "Q"), numbers_of(parent, "Q"), numbers_of(depth, "I"))
            parent, depth = (primitive_array([column]) for column in told)
        parents.append(_signed(parent))
        depths.append(depth.cast(pa.int32()))
        begin = end
    return columns | {"parent": _concatenated(parents), "depth": _concatenated(depths)}


def edge_columns(edges: Sequence[tuple[Segment, Mapping[str, Any]]]) -> Columns:
    """The branch edges with their counts."""
    which = _which([len(columns["kind"]) for _, columns in edges])
    column = {
        name: primitive_array([columns[name] for _, columns in edges]) for name in ("from", "to", "kind", "count")
    }
    return {
        "segment": _of_segment([segment.index for segment, _ in edges], which),
        "from_address": _signed(column["from"]),
        "to_address": _signed(column["to"]),
        "kind": pa.DictionaryArray.from_arrays(column["kind"], pa.array(EDGE_KINDS, pa.string())),
        "count": _signed(column["count"]),
    }


def access_columns(accesses: Sequence[OfCode], numbers: pa.Array[Any]) -> Columns:
    """Reads and writes of memory; `numbers`: of the part's functions in the session."""
    which = _which([len(columns["function"]) for _, columns, _ in accesses])
    names = ("class", "width_bytes", "reads", "writes")
    column = {name: primitive_array([columns[name] for _, columns, _ in accesses]) for name in names}
    return {
        "segment": _of_segment([segment.index for segment, _, _ in accesses], which),
        "function": _functions(accesses, which, numbers),
        "instruction_class": pa.DictionaryArray.from_arrays(
            column["class"], pa.array(INSTRUCTION_CLASSES, pa.string())
        ),
        "width_bytes": column["width_bytes"].cast(pa.int32()),
        "reads": _signed(column["reads"]),
        "writes": _signed(column["writes"]),
    }


def inlined_columns(inlined: Sequence[OfCode], numbers: pa.Array[Any]) -> Columns:
    """Instructions of inlined functions; `numbers`: of the part's functions in the session."""
    which = _which([len(columns["function"]) for _, columns, _ in inlined])
    return {
        "segment": _of_segment([segment.index for segment, _, _ in inlined], which),
        "function": _functions(inlined, which, numbers),
        "name": text_array([columns["name"] for _, columns, _ in inlined]),
        "chain": text_array([columns["chain"] for _, columns, _ in inlined]),
        "depth": primitive_array([columns["depth"] for _, columns, _ in inlined]).cast(pa.int32()),
        "instructions": _signed(primitive_array([columns["instructions"] for _, columns, _ in inlined])),
    }


def _functions(rows: Sequence[OfCode], which: pa.Array[Any], numbers: pa.Array[Any]) -> pa.Array[Any]:
    own = primitive_array([columns["function"] for _, columns, _ in rows])
    known = pc.if_else(pc.equal(own, _NO_FUNCTION), None, own)
    filled: pa.Array[Any] = pc.fill_null(
        numbers.take(_places([functions for _, _, functions in rows], known, which)), -1
    )
    return filled


def _places(functions: Sequence[SegmentFunctions], rows: pa.Array[Any], which: pa.Array[Any]) -> pa.Array[Any]:
    """Of rows among the functions of their own segments: the places among those of the part."""
    places = [primitive_array([segment.places]) for segment in functions]
    begins = [0, *accumulate(len(listed) for listed in places)]
    return _concatenated(places).take(pc.add(rows.cast(pa.int32()), _of_segment(begins[:-1], which)))


def loss_columns(
    losses: Mapping[str, Any], segments: Sequence[Segment], clock: Clock, *, imported: bool = False
) -> Columns:
    """What could not be decoded, each of a segment, with the setting that helps."""
    first = pa.array([segment.first_tsc or clock.tsc0 for segment in segments], pa.int64())
    begins = pa.array([segment.stream_begin for segment in segments], pa.int64())
    column = {name: primitive_array([values]) for name, values in losses.items() if name != "reason"}
    reasons = text_array([losses["reason"]])
    knobs = [decode_knob(str(reason), imported=imported) for reason in reasons.to_pylist()]
    return {
        "segment": pa.array([segment.index for segment in segments], pa.int32()),
        "stream_offset": pc.add(_signed(column["offset"]), begins),
        "size_bytes": _signed(column["size_bytes"]),
        "start_ns": ns_of(column["start_tsc"], clock, first),
        "end_ns": ns_of(column["end_tsc"], clock, first),
        "reason": reasons,
        "address": _signed(column["address"]),
        "knob": pa.array(knobs, pa.string()),
    }


def ns_of(tsc: pa.Array[Any], clock: Clock, first_tsc: pa.Array[Any] | pa.Scalar[Any]) -> pa.Array[Any]:
    """Unix ns of TSC values on the manifest's line; 0 (before the first timing packet) is the segment's beginning."""
    ticks = _signed(tsc)
    known = pc.if_else(pc.equal(ticks, 0), first_tsc, ticks)
    # Differences within a session have at most 40 bits: exact as doubles. Those of damaged times need not be.
    elapsed = pc.multiply(pc.subtract(known, clock.tsc0).cast(pa.float64(), safe=False), clock.ns_per_tick)
    nanoseconds: pa.Array[Any] = pc.add(whole_ns(elapsed), clock.ns0)
    return nanoseconds


def whole_ns(elapsed: pa.Array[Any]) -> pa.Array[Any]:
    """As integers of 64 bits; damaged times, or a damaged clock, may lead beyond."""
    bounded = pc.max_element_wise(pc.min_element_wise(pc.round(elapsed), _MOST_NS), -_MOST_NS)
    nanoseconds: pa.Array[Any] = bounded.cast(pa.int64())
    return nanoseconds


def _which(rows: Sequence[int]) -> pa.Array[Any]:
    return _concatenated([_constant(number, pa.int32(), count) for number, count in enumerate(rows)])


def _of_segment(values: Sequence[int], which: pa.Array[Any], kind: pa.DataType | None = None) -> pa.Array[Any]:
    if len(values) == 1:
        return _constant(values[0], kind or pa.int32(), len(which))
    return pa.array(values, kind or pa.int32()).take(which)


def _constant(value: int, kind: pa.DataType, rows: int) -> pa.Array[Any]:
    scalar: Any = pa.scalar(value, kind)
    return cast("pa.Array[Any]", pa.repeat(scalar, rows))


def _signed(values: pa.Array[Any]) -> pa.Array[Any]:
    """The same 64 bits in a signed column."""
    return values.view(pa.int64()) if values.type == pa.uint64() else values.cast(pa.int64())


def _concatenated(arrays: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
