"""The tables that sessions become: their columns, and which of them Delta keeps statistics of.

`*_ns`: unix time in nanoseconds. Addresses are 64-bit patterns in signed columns, because Delta has no unsigned ones:
those of the upper half of the address space are negative. `day` (UTC) and `session_id` are the partitions.
No column is a word that SQL wants in quotes.
Tables of an earlier release get the columns that they lack when they are next written; rows from before are NULL there.
"""

from __future__ import annotations

import pyarrow as pa

PARTITIONS = ("day", "session_id")

_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([*columns.items(), ("day", pa.date32())])


SCHEMAS: dict[str, pa.Schema] = {
    # One row for each decoded session. It is written last: a session in it has all its rows in the others.
    # `unrecorded_bytes`: those of the lost bytes that found no room; the others are among raw_bytes.
    "sessions": _schema(
        session=_TEXT,
        session_id=_TEXT,
        node=_TEXT,
        backend=_TEXT,
        purpose=_TEXT,
        target=_TEXT,
        start_ns=_LONG,
        end_ns=_LONG,
        period_ms=_LONG,
        stop_reason=_TEXT,
        segments=_INT,
        raw_bytes=_LONG,
        stored_bytes=_LONG,
        lost_bytes=_LONG,
        instructions=_LONG,
        calls=_LONG,
        unrecorded_bytes=_LONG,
    ),
    # One row for each thread's or core's stream; core -1: a thread's. `branches`: the conditional ones.
    "segments": _schema(
        session_id=_TEXT,
        segment=_INT,
        pid=_INT,
        tid=_INT,
        thread=_TEXT,
        core=_INT,
        size_bytes=_LONG,
        stored_bytes=_LONG,
        lost_bytes=_LONG,
        buffer_full=_FLAG,
        instructions=_LONG,
        branches=_LONG,
        errors=_LONG,
        first_ns=_LONG,
        last_ns=_LONG,
        psb=_LONG,
        ovf=_LONG,
        decode_ms=_LONG,
    ),
    # One row for each function that ran, over all segments; symbol_status says why a name is an address, category what
    # it is for. `blocks`: how many different basic blocks of it ran, each of which begins where a branch, taken or not,
    # led to; 0 where no such branch was seen.
    "functions": _schema(
        session_id=_TEXT,
        function=_INT,
        name=_TEXT,
        module=_TEXT,
        build_id=_TEXT,
        address=_LONG,
        size_bytes=_LONG,
        symbol_status=_TEXT,
        file=_TEXT,
        line=_INT,
        calls=_LONG,
        self_instructions=_LONG,
        total_instructions=_LONG,
        self_ns=_LONG,
        total_ns=_LONG,
        category=_TEXT,
        blocks=_LONG,
    ),
    # One row for each call; `call` counts in the segment, `parent` is its caller's (-1: not seen), core -1: unknown.
    # Of a thread whose cores were decoded together all are in the segment of the core where it first ran.
    "calls": _schema(
        session_id=_TEXT,
        segment=_INT,
        pid=_INT,
        tid=_INT,
        call=_LONG,
        parent=_LONG,
        start_ns=_LONG,
        end_ns=_LONG,
        depth=_INT,
        core=_INT,
        function=_INT,
        name=_TEXT,
        file=_TEXT,
        line=_INT,
        self_instructions=_LONG,
        total_instructions=_LONG,
        begin_truncated=_FLAG,
        end_truncated=_FLAG,
        tail_call=_FLAG,
        asynchronous=_FLAG,
    ),
    # How often control went from one address to another; to_address 0: a far transfer to where nothing was recorded.
    "edges": _schema(session_id=_TEXT, segment=_INT, from_address=_LONG, to_address=_LONG, kind=_TEXT, count=_LONG),
    # How often a function's own instructions read and wrote memory, by their class and the width of the access (0: not
    # fixed); function -1: stubs that lead to other functions.
    "accesses": _schema(
        session_id=_TEXT,
        segment=_INT,
        function=_INT,
        instruction_class=_TEXT,
        width_bytes=_INT,
        reads=_LONG,
        writes=_LONG,
    ),
    # How much of a function's own instructions belongs to what was inlined into it, when the decoder is asked for that:
    # `name` is inlined in the others of `chain`, which begins with the outermost.
    "inlined": _schema(
        session_id=_TEXT,
        segment=_INT,
        function=_INT,
        name=_TEXT,
        chain=_TEXT,
        depth=_INT,
        instructions=_LONG,
    ),
    # What was executed but is not in the tables: why, and the setting that makes it less.
    "losses": _schema(
        session_id=_TEXT,
        segment=_INT,
        stream_offset=_LONG,
        size_bytes=_LONG,
        start_ns=_LONG,
        end_ns=_LONG,
        reason=_TEXT,
        address=_LONG,
        knob=_TEXT,
    ),
}

# Statistics stand in the transaction log, which outlives a deleted session: none of names or addresses.
STATISTICS = {
    name: ",".join(field.name for field in schema if field.name in ("start_ns", "end_ns", "first_ns", "last_ns"))
    for name, schema in SCHEMAS.items()
}
