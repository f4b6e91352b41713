"""What `permille query` shows of answers whose columns or values a table of text or JSON does not have as they are."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Mesh


def answer(mesh: Mesh, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = mesh.json("query", sql)["rows"]
    return rows


def test_columns_of_one_name_are_told_apart(mesh: Mesh) -> None:
    assert answer(mesh, "SELECT 1 AS a, 2 AS a, 3 AS b") == [{"a": 1, "a_1": 2, "b": 3}]
    assert answer(mesh, "SELECT 1 AS a, 2 AS a, 3 AS a_1") == [{"a": 1, "a_2": 2, "a_1": 3}]
    assert mesh.run("query", "SELECT 1 AS a, 2 AS a").stdout.split() == ["a", "a_1", "1", "2"]


def test_a_time_has_its_nanoseconds(mesh: Mesh) -> None:
    assert answer(mesh, "SELECT make_timestamp_ns(1234567891) AS t") == [{"t": "1970-01-01 00:00:01.234567891"}]


@pytest.mark.parametrize("value", ["DATE '99999-01-01'", "TIMESTAMP '99999-01-01'", "TIMESTAMPTZ '99999-01-01 00:00Z'"])
def test_a_time_that_cannot_be_shown_is_told_with_the_way_out(mesh: Mesh, value: str) -> None:
    refused = mesh.run("query", f"SELECT {value} AS t", code=2).stderr
    assert "TIME_OUT_OF_RANGE" in refused
    assert "99999" in mesh.run("query", f"SELECT CAST({value} AS VARCHAR) AS t").stdout


def test_a_number_that_is_none_is_called_so_and_null_in_json(mesh: Mesh) -> None:
    sql = "SELECT 'NaN'::DOUBLE AS n, 'inf'::DOUBLE AS i"
    assert mesh.run("query", sql).stdout.split() == ["n", "i", "nan", "inf"]
    assert answer(mesh, sql) == [{"n": None, "i": None}]
