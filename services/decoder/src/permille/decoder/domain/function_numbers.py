"""The number of a function in a session: made from what the function is, so that workers need not agree on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

_BITS = 31


class FunctionKey(NamedTuple):
    """What makes a function itself."""

    module: str
    address: int
    name: str


def function_number(key: FunctionKey, trial: int = 0) -> int:
    """31 bits; the same in every process and session."""
    text = f"{trial}\0{key.module}\0{key.address}\0{key.name}".encode(errors="surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> (64 - _BITS)


def are_parted(told: Iterable[tuple[FunctionKey, int]]) -> bool:
    """Whether each function has one number, which no other has."""
    distinct = set(told)
    return len({key for key, _ in distinct}) == len(distinct) == len({number for _, number in distinct})


def renumbered(functions: Iterable[FunctionKey]) -> dict[FunctionKey, int]:
    """Other numbers for functions that share one; the first in the order of the keys keeps it. Mostly empty.

    Always the same for the same functions, so that parts which got theirs before the others could keep them. Two of
    10,000 functions meet in one session of fifty.
    """
    taken: set[int] = set()
    moved: list[FunctionKey] = []
    for key in sorted(set(functions)):
        number = function_number(key)
        if number in taken:
            moved.append(key)
        taken.add(number)
    others: dict[FunctionKey, int] = {}
    for key in moved:
        others[key] = next(number for trial in count(1) if (number := function_number(key, trial)) not in taken)
        taken.add(others[key])
    return others


def numbered(key: FunctionKey, moved: Mapping[FunctionKey, int]) -> int:
    """The number, or the other one that it got."""
    return moved[key] if key in moved else function_number(key)
