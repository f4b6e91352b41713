"""speedscope's file format: one evented profile for each thread (https://www.speedscope.app/file-format-schema.json)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain

from permille.decoder.domain.call_nesting import NestedEvent, nested_events
from permille.decoder.domain.session_rows import Function, SessionRows, Thread

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_EVENTS_AT_ONCE = 10_000


def speedscope(rows: SessionRows) -> Iterator[bytes]:
    """Times in ns since the recording began. Threads without calls are left out."""
    functions = rows.functions()
    # speedscope's frames are numbered without gaps.
    frames = {number: index for index, number in enumerate(functions)}
    session = rows.session
    head = {
        "$schema": _SCHEMA,
        "exporter": "permille",
        "name": f"{session['target']} {session['session_id']}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(function) for function in functions.values()]},
    }
    yield json.dumps(head)[:-1].encode() + b', "profiles": ['
    first = True
    threads = rows.threads()
    for thread, calls in zip(threads, rows.calls(threads), strict=True):
        events = nested_events(calls)
        begin = next(events, None)
        if begin is not None:
            yield b"" if first else b","
            yield from _profile(thread, chain([begin], events), frames, session["start_ns"])
            first = False
    yield b"]}\n"


def _frame(function: Function) -> dict[str, str | int]:
    frame: dict[str, str | int] = {"name": function.name}
    if function.file:
        frame |= {"file": function.file, "line": function.line}
    elif function.module:
        frame |= {"file": function.module}
    return frame


def _profile(thread: Thread, events: Iterator[NestedEvent], frames: dict[int, int], origin_ns: int) -> Iterator[bytes]:
    head = {"type": "evented", "name": thread.title, "unit": "nanoseconds"}
    yield json.dumps(head)[:-1].encode() + b', "events": ['
    start_ns, end_ns = None, 0
    written: list[str] = []
    first = True
    for begins, at_ns, function in events:
        start_ns = at_ns if start_ns is None else start_ns
        end_ns = at_ns
        kind = "O" if begins else "C"
        written.append(f'{{"type":"{kind}","at":{at_ns - origin_ns},"frame":{frames[function]}}}')
        if len(written) == _EVENTS_AT_ONCE:
            yield ("" if first else ",").encode() + ",".join(written).encode()
            written, first = [], False
    if written:
        yield ("" if first else ",").encode() + ",".join(written).encode()
    begin_ns = origin_ns if start_ns is None else start_ns
    yield f'], "startValue": {begin_ns - origin_ns}, "endValue": {end_ns - origin_ns}}}'.encode()
