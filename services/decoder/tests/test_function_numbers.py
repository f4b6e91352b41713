"""Numbers that nobody has to agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.decoder.domain.function_numbers import FunctionKey, are_parted, function_number, numbered, renumbered

keys = st.builds(FunctionKey, st.text(max_size=3), st.integers(0, 2**64 - 1), st.text(max_size=3))


@given(keys)
def test_a_number_is_a_positive_int32_and_always_the_same(key: FunctionKey) -> None:
    assert 0 <= function_number(key) < 2**31
    assert function_number(key) == function_number(FunctionKey(*key))


def test_functions_differ_by_each_part_of_what_they_are() -> None:
    some = [FunctionKey("m", 1, "f"), FunctionKey("m", 1, "g"), FunctionKey("m", 2, "f"), FunctionKey("n", 1, "f")]
    assert len({function_number(key) for key in some}) == 4
    assert renumbered(some) == {}


@given(st.lists(keys, max_size=6, unique=True))
def test_whatever_meets_is_parted(functions: list[FunctionKey]) -> None:
    with pytest.MonkeyPatch.context() as few:
        few.setattr("permille.decoder.domain.function_numbers._BITS", 3)
        moved = renumbered(functions)
        assert renumbered([*reversed(functions), *functions]) == moved
        assert are_parted((key, numbered(key, moved)) for key in functions)
        assert are_parted((key, function_number(key)) for key in functions) == (not moved)
        kept = {function_number(key) for key in set(functions) - set(moved)}
        assert kept == {function_number(key) for key in functions}


def test_a_function_of_two_numbers_is_not_parted() -> None:
    assert not are_parted([(FunctionKey("m", 1, "f"), 1), (FunctionKey("m", 1, "f"), 2)])
