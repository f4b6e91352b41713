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


def test_a_side_without_calls_is_named_with_why_and_nothing_is_held_against_it() -> None:
    def shown(*silent: str) -> str:
        console = Console(width=200, record=True)
        answer = coverage_pb2.DiffCoverageResponse(without_calls=silent)
        answer.MergeFrom(ANSWER)
        for part in diff_text(answer, "instructions"):
            console.print(part)
        return console.export_text()

    slow, fast = "nodes/n1/sessions/slow", "nodes/n1/sessions/fast"
    text = shown(fast)
    assert f"B has no calls: in {fast} the program slept or waited, or nothing could be decoded" in text
    assert "`permille report fast` says more" in text
    assert ("A has no calls" in text, "NAME" in text) == (False, False)
    assert all(f"{side} has no calls" in shown(slow, fast) for side in "AB")
    # Another session of a side has some.
    both = coverage_pb2.DiffCoverageResponse(a=[slow, fast], b=[slow], without_calls=[fast])
    assert not any("no calls" in str(part) for part in diff_text(both, "calls"))
