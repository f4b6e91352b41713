"""What a query finds as a table of text."""

from __future__ import annotations

import io
from typing import Any

import pytest
from permille.cli.rendering.answer_table import print_answer
from rich.console import Console


def lines(rows: list[dict[str, Any]], width: int = 40) -> list[str]:
    out = io.StringIO()
    columns = [list(column) for column in zip(*(row.values() for row in rows), strict=True)]
    # Some rows at a time: the table is the same.
    some = [[column[begin : begin + 7] for column in columns] for begin in range(0, len(rows), 7)]
    print_answer(Console(file=out, width=width), list(rows[0]), lambda: some)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_numbers_stand_to_the_right_and_names_to_the_left() -> None:
    rows = [{"calls": 5, "name": "名前", "ns": 1.5}, {"calls": 12345678, "name": "main", "ns": None}]
    assert lines(rows) == ["   calls  name   ns", "       5  名前  1.5", "12345678  main"]


def test_what_is_too_long_for_the_terminal_is_folded_in_its_column() -> None:
    rows = [{"name": "f" * 50, "calls": 7}, {"name": "main", "calls": 8}]
    assert lines(rows) == [
        "name" + " " * 31 + "calls",
        "f" * 33 + " " * 6 + "7",
        "f" * 17,
        "main" + " " * 35 + "8",
    ]


@pytest.mark.parametrize("widest", [0, 19])
def test_a_column_is_as_wide_as_its_widest_row_wherever_that_is(widest: int) -> None:
    rows = [{"n": 10**6 if number == widest else number, "name": "f"} for number in range(20)]
    assert {len(line) for line in lines(rows)} == {len("1000000  name"), len("1000000  f")}


@pytest.mark.parametrize("long", [0, 7, 1023, 1024])
def test_each_row_is_there_once_and_in_order(long: int) -> None:
    rows = [{"number": number, "text": "x" * 60 if number == long else "y"} for number in range(2500)]
    numbers = [line.split()[0] for line in lines(rows)[1:] if line.lstrip()[0] != "x"]
    assert numbers == [str(number) for number in range(2500)]


def test_an_answer_may_have_no_rows_or_columns() -> None:
    out = io.StringIO()
    for columns in (["name"], []):
        print_answer(Console(file=out, width=40), columns, lambda: [])
    assert out.getvalue().split() == ["name"]


def test_columns_that_a_terminal_has_no_room_for_make_longer_lines() -> None:
    row: dict[str, Any] = {f"number{number:02}": number * 10**9 for number in range(30)}
    head, numbers, rest = lines([{**row, "text": "x" * 12}], width=20)
    assert head.split() == [*row, "text"]
    assert numbers.split() == [*map(str, row.values()), "x" * 8]
    assert rest.strip() == "x" * 4
