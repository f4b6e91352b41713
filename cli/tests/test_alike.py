"""Lines that are alike: the first of them, and how many more there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from permille.cli.commands import pt
from permille.cli.invocation import Invocation
from permille.cli.rendering.alike import without_most_alike

from .test_report import REPORT, text

MISSING = [f"/lib/lib{number}.so: no file with build id {number:040x} is there" for number in range(32_000)]
OTHER = "the recording ends in the middle of a record"


def test_of_what_is_alike_the_first_are_shown_and_the_others_counted() -> None:
    shown = without_most_alike([*MISSING, OTHER], "--json lists all")
    assert shown == [*MISSING[:20], OTHER, f"and 31,980 more as {MISSING[0]!r}: --json lists all"]


@pytest.mark.parametrize(
    "lines", [MISSING[:20], [OTHER], [f"{chr(97 + number)} is wanted" for number in range(26)], []]
)
def test_few_or_different_ones_are_all_shown(lines: list[str]) -> None:
    assert without_most_alike(lines, "") == lines


def test_warnings_of_many_missing_files_are_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    class Capture:
        warnings = [*MISSING, OTHER]  # noqa: RUF012

    pt._tell_warnings(Invocation(), Capture())  # type: ignore[arg-type]
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 22 and told[20] == f"warning: {OTHER}"
    assert "31,980 more" in told[21] and "permille pt stat --json" in told[21]


def test_a_report_has_few_notes_of_many_missing_files() -> None:
    shown = text(replace(REPORT, remarks=[*MISSING, OTHER]))
    assert shown.count("note: /lib/") == 20 and "31,980 more" in shown and f"note: {OTHER}" in shown
