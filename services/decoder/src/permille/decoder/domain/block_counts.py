"""How many different basic blocks of each function ran in a session: parts put together by union."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute
from permille import ptcore
from permille.decoder.domain.ptcore_columns import numbers_of, primitive_array, whole

pc: Any = pyarrow.compute


def block_counts(functions: pa.Table) -> pa.Array[Any]:
    """Of the functions of all parts (`part_record.FUNCTIONS`): in each row the blocks of its function in all of them.

    Code that no symbol divides is divided by the calls that were seen, so that parts may tell of different functions
    there: a block belongs to the last of the session's functions that begins before it, and to no other.
    """
    if not functions.num_rows:
        return pa.array([], pa.int64())
    column: dict[str, Any] = {name: whole(functions[name]) for name in functions.column_names}
    # Such a function has no name, and no size either.
    bare = pc.and_(pc.starts_with(column["symbol_status"], "none"), pc.equal(column["size"], 0))
    heads = pc.if_else(bare, column["module"].dictionary_encode().indices, -1)
    counts = ptcore.block_counts(
        numbers_of(column["function"], "i"),
        numbers_of(column["address"], "Q"),
        numbers_of(heads.cast(pa.int32()), "i"),
        numbers_of(column["blocks"].offsets, "i"),
        numbers_of(column["blocks"].values, "Q"),
    )
    return primitive_array([counts]).view(pa.int64())
