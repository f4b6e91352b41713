"""How many different basic blocks of each function ran in a session: parts put together by union."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute


def block_counts(functions: pa.Table) -> pa.Table:
    """Of the functions of all parts (`part_record.FUNCTIONS`): `function`, each once, and `blocks`.

    Code that no symbol divides is divided by the calls that were seen, so that parts may tell of different functions
    there: a block belongs to the last of the session's functions that begins before it, and to no other.
    """
    functions = functions.combine_chunks()
    ran = pc.list_parent_indices(functions["blocks"]).combine_chunks()
    address = pc.list_flatten(functions["blocks"]).combine_chunks()
    # Such a function has no name, and no size either.
    bare = pc.and_(pc.starts_with(functions["symbol_status"], "none"), pc.equal(functions["size"], 0))
    told = pa.table(
        {"function": functions["function"].take(ran), "address": address, "module": functions["module"].take(ran)}
    )
    is_bare = bare.take(ran)
    heads = functions.filter(bare).select(["function", "address", "module"])
    divided = pa.concat_tables(
        [told.filter(pc.invert(is_bare)).select(["function", "address"]), _divided(heads, told.filter(is_bare))]
    )
    blocks = divided.group_by(["function", "address"], use_threads=False).aggregate([])
    # A function of which nothing else is known is there with none.
    none = functions.select(["function"]).append_column("blocks", pa.repeat(pa.scalar(0, pa.int64()), len(functions)))
    one = blocks.select(["function"]).append_column("blocks", pa.repeat(pa.scalar(1, pa.int64()), len(blocks)))
    summed = pa.concat_tables([none, one]).group_by("function", use_threads=False).aggregate([("blocks", "sum")])
    return summed.rename_columns(["function", "blocks"])


def _divided(heads: pa.Table, blocks: pa.Table) -> pa.Table:
    """Function and address of each block, the function being the one of `heads` of its module that begins last."""
    heads = heads.append_column("head", pa.repeat(pa.scalar(0, pa.int8()), len(heads)))
    nobody = pa.nulls(len(blocks), pa.int32())
    blocks = blocks.set_column(0, "function", nobody).append_column(
        "head", pa.repeat(pa.scalar(1, pa.int8()), len(blocks))
    )
    order: Any = [("module", "ascending"), ("address", "ascending"), ("head", "ascending")]
    together = pa.concat_tables([heads, blocks]).sort_by(order).combine_chunks()
    owner = pc.fill_null_forward(together["function"])
    return (
        together.set_column(0, "function", owner).filter(pc.equal(together["head"], 1)).select(["function", "address"])
    )
