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


def renumbered(numbers: Iterable[tuple[FunctionKey, int]]) -> dict[FunctionKey, int]:
    """Other numbers for functions that share one; the first in the order of the keys keeps it. Mostly empty.

    Two of 10,000 functions meet in one session of fifty.
    """
    keys_of: dict[int, list[FunctionKey]] = {}
    for key, number in dict(numbers).items():
        keys_of.setdefault(number, []).append(key)
    moved: dict[FunctionKey, int] = {}
    for keys in [sorted(keys) for keys in keys_of.values() if len(keys) > 1]:
        for key in keys[1:]:
            number = _free(key, keys_of)
            keys_of[number] = [key]
            moved[key] = number
    return moved


def numbered(key: FunctionKey, moved: Mapping[FunctionKey, int]) -> int:
    """The number, or the other one that it got."""
    return moved[key] if key in moved else function_number(key)


def _free(key: FunctionKey, taken: Mapping[int, object]) -> int:
    return next(number for trial in count(1) if (number := function_number(key, trial)) not in taken)
