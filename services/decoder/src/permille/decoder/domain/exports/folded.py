"""Folded stacks (Brendan Gregg's FlameGraph): `process;thread;outer;inner nanoseconds`, one line a stack."""

from __future__ import annotations

from collections.abc import Iterator

from permille.decoder.domain.call_tree import call_tree
from permille.decoder.domain.session_rows import SessionRows


def folded(rows: SessionRows) -> Iterator[bytes]:
    """The weight is the time spent in the function itself, in ns; stacks without any are left out."""
    functions = rows.functions()
    names = {number: _frame(function.name) for number, function in functions.items()}
    for thread in rows.threads():
        top = f"{_frame(str(rows.session['target']))};{_frame(thread.title)}"
        for stack, node in call_tree(rows.calls(thread.segment)).stacks():
            if node.self_ns > 0:
                yield f"{top};{';'.join(names[number] for number in stack)} {node.self_ns}\n".encode()


def _frame(name: str) -> str:
    # A semicolon separates frames, a line end stacks.
    return name.replace(";", ":").replace("\n", " ") or "?"
