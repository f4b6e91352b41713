"""Numbers that nobody has to agree on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from permille.decoder.domain.function_numbers import FunctionKey, function_number, renumbered

keys = st.builds(FunctionKey, st.text(max_size=3), st.integers(0, 2**64 - 1), st.text(max_size=3))


@given(keys)
def test_a_number_is_a_positive_int32_and_always_the_same(key: FunctionKey) -> None:
    assert 0 <= function_number(key) < 2**31
    assert function_number(key) == function_number(FunctionKey(*key))


def test_functions_differ_by_each_part_of_what_they_are() -> None:
    some = [FunctionKey("m", 1, "f"), FunctionKey("m", 1, "g"), FunctionKey("m", 2, "f"), FunctionKey("n", 1, "f")]
    assert len({function_number(key) for key in some}) == 4
    assert renumbered((key, function_number(key)) for key in some) == {}


@given(st.dictionaries(keys, st.integers(0, 3), max_size=20))
def test_whatever_meets_is_parted(numbers: dict[FunctionKey, int]) -> None:
    moved = renumbered(numbers.items())
    final = numbers | moved
    assert len(set(final.values())) == len(final)
    assert renumbered(reversed(numbers.items())) == moved
    kept = set(numbers) - set(moved)
    assert {numbers[key] for key in kept} == set(numbers.values())
