"""What `permille diff` shows, from an answer as the coverage service gives it."""

from __future__ import annotations

from permille.api.coverage.v1 import coverage_pb2
from permille.cli.rendering.diff_text import change_text, diff_json, diff_text
from rich.console import Console

ANSWER = coverage_pb2.DiffCoverageResponse(
    a=["nodes/n1/sessions/slow"], b=["nodes/n1/sessions/fast"], functions_total=9, calls_total=1, similarity=0.875
)
ANSWER.functions.add(
    name="rehash", module="/bin/server", count_a=40, share_a=0.25, sessions_a=1, statistic=99, only_in="a"
)
ANSWER.functions.add(
    name="get", module="/bin/server", count_a=10, count_b=5, share_a=0.5, share_b=0.25, sessions_a=1, sessions_b=1
)
ANSWER.calls.add(caller="main", name="rehash", module="/bin/server", count_a=40, share_a=1, sessions_a=1, only_in="a")


def test_the_text_names_both_sides_what_only_one_did_and_how_to_see_the_rest() -> None:
    console = Console(width=120, record=True)
    for part in diff_text(ANSWER, "instructions"):
        console.print(part)
    text = console.export_text()
    assert "A: nodes/n1/sessions/slow" in text
    assert "alike: 87.5 %" in text
    assert "only A" in text
    assert "x 0.50" in text
    assert "main > rehash" in text
    assert "7 more: --top 9 shows all" in text


def test_programs_get_every_number_as_a_number() -> None:
    found = diff_json(ANSWER)
    assert found["functions"][0]["only_in"] == "a"
    assert (found["functions"][1]["count_a"], found["calls"][0]["caller"]) == (10, "main")


def test_no_difference_is_said() -> None:
    console = Console(width=120, record=True)
    for part in diff_text(coverage_pb2.DiffCoverageResponse(), "calls"):
        console.print(part)
    assert "Functions, by calls: no difference" in console.export_text()
    assert change_text(coverage_pb2.Difference()) == ""
