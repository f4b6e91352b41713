"""The functions that compilers put into one another at one place, as the table `inlined` names them."""

from __future__ import annotations

from typing import TypeAlias

# Inlined functions, each inside the one before; empty: the function's own code.
Chain: TypeAlias = tuple[str, ...]


def chain_of(told: str, name: str, depth: int) -> Chain:
    """`told` as the table `inlined` has it. Outer functions whose names hold the separator stay together."""
    outer = told.removesuffix(name).removesuffix(" > ")
    names = outer.split(" > ") if outer else []
    return (*(names if len(names) == depth - 1 else [outer]), name)
