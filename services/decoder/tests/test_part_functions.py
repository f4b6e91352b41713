"""The functions of a part, put together from those of its segments."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from permille.decoder.domain.function_numbers import FunctionKey, function_number
from permille.decoder.domain.part_functions import PartFunctions, SegmentFunctions
from permille.ptcore import Column, Functions

MAIN, ALSO_MAIN, SIZE = ("/bin/s", 16, "main"), ("/bin/s", 16, "start"), ("/lib/é", (1 << 64) - 64, "size()")
SUMMED = ("calls", "self_instructions", "total_instructions", "self_ticks", "total_ticks")


def texts(told: list[str]) -> tuple[Column, Column]:
    data = [text.encode() for text in told]
    ends = [sum(map(len, data[:count])) for count in range(len(data) + 1)]
    return Column(array("I", ends)), Column(array("B", b"".join(data)))


def told(*keys: tuple[str, int, str]) -> dict[str, Any]:
    """As a segment tells of functions."""
    return {
        "binary": texts([binary for binary, _, _ in keys]),
        "address": Column(array("Q", [address for _, address, _ in keys])),
        "name": texts([name for _, _, name in keys]),
        "size": Column(array("Q", [8] * len(keys))),
        "symbol_status": texts(["symtab"] * len(keys)),
        "file": texts([f"{name}.c" for _, _, name in keys]),
        "line": Column(array("I", range(len(keys)))),
    }


def sums(*of_functions: int) -> dict[str, Column]:
    return {name: Column(array("Q", [number + sum_ for sum_ in of_functions])) for number, name in enumerate(SUMMED)}


def blocks(*ran: tuple[int, int]) -> dict[str, Column]:
    functions, addresses = zip(*ran, strict=True)
    return {"function": Column(array("I", functions)), "address": Column(array("Q", addresses))}


def test_a_function_of_several_segments_is_one_with_all_that_they_tell() -> None:
    part, one, other = PartFunctions({}), SegmentFunctions(), SegmentFunctions()
    part.add(told(MAIN), one)
    part.add(told(SIZE, MAIN), other)
    # Segments name functions as they come by them.
    part.add(told(ALSO_MAIN), one)
    part.add_totals(sums(1, 10), blocks((0, 24), (0, 16), (1, 16)), one)
    part.settle()
    part.add_totals(sums(100, 1000), blocks((1, 16), (1, 32), (0, 5)), other)
    part.settle()
    assert list(one.places) == [0, 2]
    assert list(other.places) == [1, 0]
    rows = part.totals({"/bin/s": "b1"}).to_pylist()
    assert [(row["module"], row["address"], row["name"]) for row in rows] == [MAIN, SIZE, ALSO_MAIN]
    assert [row["function"] for row in rows] == [function_number(FunctionKey(*key)) for key in (MAIN, SIZE, ALSO_MAIN)]
    assert [row["blocks"] for row in rows] == [[16, 24, 32], [5], [16]]
    assert [[row[name] for row in rows] for name in SUMMED[:2]] == [[1001, 100, 10], [1003, 101, 11]]
    assert [(row["build_id"], row["file"], row["line"]) for row in rows] == [
        ("b1", "main.c", 0),
        ("", "size().c", 0),
        ("b1", "start.c", 0),
    ]
    assert part.told([2, 0]) == (list(part.numbers)[::-2], ["start", "main"], ["start.c", "main.c"], [0, 0])


def test_a_function_that_got_another_number_has_that() -> None:
    part = PartFunctions({FunctionKey(*SIZE): 7})
    part.add(told(MAIN, SIZE), SegmentFunctions())
    part.settle()
    assert list(part.numbers) == [function_number(FunctionKey(*MAIN)), 7]


def test_a_part_in_which_nothing_ran_has_no_functions() -> None:
    assert PartFunctions({}).totals({}).num_rows == 0


def test_what_does_not_fit_is_refused() -> None:
    functions, places = Functions(), array("i", [0])
    with pytest.raises(ValueError, match="one length"):
        functions.add(told(MAIN) | {"line": Column(array("I"))})
    with pytest.raises(TypeError, match="column line has a width of 8 bits in place of 32"):
        functions.add(told(MAIN) | {"line": Column(array("B", [0]))})
    with pytest.raises(ValueError, match="there is no function 0"):
        functions.add_totals(places, sums(1), blocks((0, 16)))
    functions.add(told(MAIN))
    with pytest.raises(ValueError, match="calls of 2 functions"):
        functions.add_totals(places, sums(1, 2), blocks((0, 16)))
    with pytest.raises(ValueError, match="a block of function 1 of 1"):
        functions.add_totals(places, sums(1), blocks((1, 16)))
    with pytest.raises(ValueError, match="blocks of 1 functions at 2 addresses"):
        functions.add_totals(places, sums(1), blocks((0, 16)) | {"address": blocks((0, 16), (0, 20))["address"]})
    with pytest.raises(ValueError, match="there are 1 functions"):
        functions.told([1])
