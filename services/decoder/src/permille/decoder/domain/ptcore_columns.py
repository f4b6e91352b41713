"""ptcore's columns as Arrow arrays, without copying where Arrow has the same layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import pyarrow as pa

_PRIMITIVE: dict[str, pa.DataType] = {
    "B": pa.uint8(),
    "I": pa.uint32(),
    "L": pa.uint64(),
    "Q": pa.uint64(),
    "i": pa.int32(),
    "l": pa.int64(),
    "q": pa.int64(),
}


def primitive_array(pieces: Sequence[Any]) -> pa.Array[Any]:
    """Buffers of one primitive type as one array; several are copied together: an array for each would cost more."""
    view = memoryview(pieces[0])
    primitive = _PRIMITIVE[view.format.lstrip("<=@")]
    buffer = pa.py_buffer(view if len(pieces) == 1 else b"".join(pieces))
    return pa.Array.from_buffers(primitive, buffer.size // view.itemsize, [None, buffer])


def text_array(pieces: Sequence[tuple[Any, Any]]) -> pa.Array[Any]:
    """UTF-8 texts as (32-bit offsets, data)."""
    arrays = [
        pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        for offsets, data in pieces
    ]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def numbers_of(values: pa.Array[Any], kind: Literal["B", "i", "I", "q", "Q"]) -> memoryview:
    """The numbers of an array without nulls, for ptcore."""
    data = values.buffers()[1]
    return memoryview(data or b"").cast("B").cast(kind)[values.offset : values.offset + len(values)]


def whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """A column in one piece."""
    told: Any = column
    return cast("pa.Array[Any]", told.chunk(0) if told.num_chunks == 1 else told.combine_chunks())
