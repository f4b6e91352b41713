"""ptcore's columns as Arrow arrays, without copying where Arrow has the same layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def arrow_batch(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of all columns. Raises TypeError for a column that is neither a primitive buffer nor (offsets, data)."""
    return pa.record_batch({name: arrow_array(column) for name, column in columns.items()})


def arrow_array(column: Any) -> pa.Array[Any]:
    """A primitive buffer, or UTF-8 text as (offsets, data)."""
    if isinstance(column, tuple):
        offsets = memoryview(column[0])
        kind: pa.DataType = pa.large_string() if offsets.itemsize == 8 else pa.string()
        count = offsets.nbytes // offsets.itemsize - 1
        text = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column[0]), pa.py_buffer(column[1])])
        return text.cast(pa.string())
    view = memoryview(column)
    primitive = _PRIMITIVE[view.format.lstrip("<=@")]
    return pa.Array.from_buffers(primitive, view.nbytes // view.itemsize, [None, pa.py_buffer(column)])
