"""What a function did itself, divided among what compilers put into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from permille.decoder.domain.call_tree import CallNode
from permille.decoder.domain.inlined_chain import Chain


class Share(NamedTuple):
    """What a chain has of a function's calls, instructions and ns."""

    chain: Chain
    calls: int
    self_instructions: int
    self_ns: int


def divided(node: CallNode, parts: Sequence[tuple[Chain, int]]) -> Iterator[Share]:
    """The node's work by the instructions that `parts` have of its function over all calls; it adds up to the whole.

    The first part is the function's own code, which has the calls.
    """
    self_ns, whole = max(node.self_ns, 0), sum(instructions for _, instructions in parts)
    if not whole:
        yield Share((), node.calls, node.self_instructions, self_ns)
        return
    before = 0
    for number, (chain, instructions) in enumerate(parts):
        behind = before + instructions
        yield Share(
            chain,
            0 if number else node.calls,
            node.self_instructions * behind // whole - node.self_instructions * before // whole,
            self_ns * behind // whole - self_ns * before // whole,
        )
        before = behind
