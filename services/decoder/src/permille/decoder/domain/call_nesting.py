"""Calls as properly nested begin and end events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from permille.decoder.domain.session_rows import Call


class NestedEvent(NamedTuple):
    """A call that begins or ends; times never go back."""

    begins: bool
    at_ns: int
    function: int


def nested_events(calls: Iterable[Call]) -> Iterator[NestedEvent]:
    """The events of one thread. `calls` come as they began, callers first; some may be left out.

    What begins at a depth ends everything that is as deep or deeper. Every begin has its end.
    """
    open_calls: list[Call] = []
    now = 0
    for call in calls:
        while open_calls and open_calls[-1].depth >= call.depth:
            ended = open_calls.pop()
            now = max(now, min(ended.end_ns, call.start_ns))
            yield NestedEvent(False, now, ended.function)
        now = max(now, call.start_ns)
        yield NestedEvent(True, now, call.function)
        open_calls.append(call)
    while open_calls:
        ended = open_calls.pop()
        now = max(now, ended.end_ns)
        yield NestedEvent(False, now, ended.function)
