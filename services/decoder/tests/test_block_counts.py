"""Basic blocks of functions over the parts of a session."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from permille.decoder.domain.block_counts import block_counts
from permille.decoder.domain.part_record import FUNCTIONS

NAMED, BARE = {"symbol_status": "symtab", "size": 16}, {"symbol_status": "none: no symbol covers it", "size": 0}


def counts(*parts: list[dict[str, Any]]) -> dict[int, int]:
    """By function; each function is told with the addresses of its blocks."""
    tables = [
        pa.Table.from_pylist([{"module": "/bin/s"} | function for function in part], schema=FUNCTIONS) for part in parts
    ]
    told: Any = pa.concat_tables(tables)
    counted: Any = block_counts(told)
    return dict(zip(told["function"].to_pylist(), counted.to_pylist(), strict=True))


def test_a_block_that_several_parts_saw_counts_once() -> None:
    one = [{"function": 1, "address": 16, "blocks": [16, 20]}, {"function": 2, "address": 64, "blocks": []}]
    two = [{"function": 1, "address": 16, "blocks": [20, 24, 8]}]
    parts = [[function | NAMED for function in part] for part in (one, two)]
    assert counts(*parts) == counts(*reversed(parts)) == {1: 4, 2: 0}


def test_code_without_symbols_has_each_block_in_one_function_whatever_its_parts_knew() -> None:
    # One part saw the call of 0x40, the other took that code for what begins before it.
    knew = [
        {"function": 1, "address": 0x10, "blocks": [0x14, 0x20]},
        {"function": 2, "address": 0x40, "blocks": [0x40, 0x48]},
    ]
    did_not = [{"function": 1, "address": 0x10, "blocks": [0x20, 0x40, 0x44]}]
    elsewhere = [{"function": 3, "address": 0x42, "module": "/lib/other", "blocks": [0x42]}]
    parts = [[function | BARE for function in part] for part in (knew, did_not, elsewhere)]
    named = {"function": 4, "address": 0x18, "blocks": [0x46]} | NAMED
    assert counts(*parts, [named]) == {1: 2, 2: 3, 3: 1, 4: 1}
    assert counts(*parts) == counts(*reversed(parts)) == {1: 2, 2: 3, 3: 1}


def test_a_session_in_which_nothing_ran_has_no_functions() -> None:
    assert counts([]) == {}
