"""Calls summed over equal call stacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from permille.decoder.domain.session_rows import Call


@dataclass
class CallNode:
    """One function in one call stack: what it did itself, over all calls with that stack."""

    function: int
    calls: int = 0
    self_instructions: int = 0
    self_ns: int = 0
    children: dict[int, CallNode] = field(default_factory=dict)

    def stacks(self) -> Iterator[tuple[Sequence[int], CallNode]]:
        """Every node below this one with its stack, outermost function first; the next one overwrites it."""
        # One list: whole stacks of a recursion take the square of its depth.
        stack: list[int] = []
        # Not recursive: stacks may be deeper than Python's.
        pending = [(0, child) for child in reversed(self.children.values())]
        while pending:
            depth, node = pending.pop()
            stack[depth:] = (node.function,)
            yield stack, node
            pending += [(depth + 1, child) for child in reversed(node.children.values())]


def call_tree(calls: Iterable[Call]) -> CallNode:
    """The root (which is no function) over one thread's calls, given as they began, callers first.

    What a call that is left out did is its caller's own: instructions and time alike.
    """
    root = CallNode(-1)
    open_calls = [(root, -1)]
    for call in calls:
        while len(open_calls) > 1 and open_calls[-1][1] >= call.depth:
            open_calls.pop()
        caller = open_calls[-1][0]
        node = caller.children.get(call.function)
        if node is None:
            node = caller.children[call.function] = CallNode(call.function)
        duration = call.end_ns - call.start_ns
        node.calls += 1
        node.self_instructions += call.total_instructions
        node.self_ns += duration
        if caller is not root:
            caller.self_ns -= duration
            caller.self_instructions -= call.total_instructions
        open_calls.append((node, call.depth))
    return root
