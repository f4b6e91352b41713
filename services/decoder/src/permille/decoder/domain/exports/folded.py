"""Folded stacks (Brendan Gregg's FlameGraph): `process;thread;outer;inner nanoseconds`, one line a stack."""

from __future__ import annotations

from collections.abc import Iterator

from permille.decoder.domain.call_tree import call_tree
from permille.decoder.domain.inlined_shares import divided
from permille.decoder.domain.session_rows import SessionRows
from permille.mesh.errors import FailedPrecondition


def folded(rows: SessionRows) -> Iterator[bytes]:
    """The weight is the time spent in the function itself, in ns; stacks without any are left out.

    Inlined functions, where they are known, have FlameGraph's mark: `name_[i]`. Raises `FailedPrecondition` (NO_TIMES)
    where no stack has any.
    """
    functions = rows.functions()
    names = {number: _frame(function.name) for number, function in functions.items()}
    calls = timed = 0
    threads = rows.threads()
    for thread, made, inlined in zip(threads, rows.calls(threads), rows.inlined(threads), strict=True):
        top = f"{_frame(str(rows.session['target']))};{_frame(thread.title)}"
        for stack, node in rows.until_interrupted(call_tree(made).stacks()):
            calls += node.calls
            if node.self_ns <= 0:
                continue
            timed += 1
            called = ";".join(names[number] for number in stack)
            for share in divided(node, inlined.get(node.function, ())):
                if share.self_ns > 0:
                    frames = ";".join([top, called, *(f"{_frame(name)}_[i]" for name in share.chain)])
                    yield f"{frames} {share.self_ns}\n".encode()
    if calls and not timed:
        raise _no_times(rows.session["session_id"], calls)


def _no_times(session_id: str, calls: int) -> FailedPrecondition:
    return FailedPrecondition(
        f"no time passes in the {calls:,} calls of {session_id}: folded stacks have no weight",
        reason="NO_TIMES",
        help="choose pprof, which counts instructions and calls too; times come with timing packets in the recording",
        metadata={"session_id": session_id},
    )


def _frame(name: str) -> str:
    # A semicolon separates frames, a line end stacks: what readers take for one is more than a line feed.
    return " ".join(name.replace(";", ":").splitlines()) or "?"
