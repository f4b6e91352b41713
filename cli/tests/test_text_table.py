"""What tables show where there is less room than they need, and where there is no edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.api.operation.v1 import operation_pb2
from permille.cli.invocation import console_for
from permille.cli.rendering.coverage_text import coverage_text
from permille.cli.rendering.diff_text import diff_text
from permille.cli.rendering.operation_text import operation_table
from permille.cli.rendering.session_table import session_table
from permille.cli.rendering.table_layout import UNBOUNDED, Column, number
from permille.cli.rendering.text_table import TextTable
from permille.cli.session_list import ListedSession
from rich.console import Console, RenderableType
from rich.text import Text

WIDTHS = (40, 80, 100, 132, 160, UNBOUNDED)
SESSIONS = [
    ListedSession(
        name=f"nodes/n1/sessions/20261130-170055-3c382ee{nth}",
        state="DECODED",
        target=target,
        start_ns=1_800_000_000_000_000_000,
        end_ns=1_800_000_000_025_510_000,
        raw_bytes=126_000,
        lost_bytes=2 << 20,
        unrecorded_bytes=2 << 20,
        instructions=584_166,
        calls=7_479,
        retention_s=3600,
    )
    for nth, target in enumerate(["python3", "t" * 200])
]


def lines(parts: RenderableType | Iterable[RenderableType], width: int) -> list[str]:
    """As a command prints them."""
    console = console_for(False)
    console.width, console.file = width, StringIO()
    for part in [parts] if isinstance(parts, TextTable) else parts:  # type: ignore[union-attr]
        console.print(part)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def table(*rows: Sequence[str]) -> TextTable:
    made = TextTable(Column("NAME", least=6), Column("KIND", rank=2), number("CALLS"), number("TIME", rank=1))
    for row in rows:
        made.add_row(*row)
    return made


def test_texts_are_folded_then_the_least_important_columns_go_and_are_named() -> None:
    row = ("a_longer_name", "kind", "1,234,567", "5.00 ms")
    assert lines(table(row), 39) == [
        "NAME           KIND      CALLS     TIME",
        "a_longer_name  kind  1,234,567  5.00 ms",
    ]
    assert lines(table(row), 33)[1:] == ["a_longe  kind  1,234,567  5.00 ms", "r_name"]
    assert lines(table(row), 31) == [
        "NAME             CALLS     TIME",
        "a_longer_na  1,234,567  5.00 ms",
        "me",
        "no room for KIND: `| less -S` shows all",
    ]
    assert lines(table(row), 20)[1] == "a_longer_  1,234,567"


def test_where_nothing_can_go_lines_are_longer_than_the_terminal() -> None:
    assert lines(table(("a_longer_name", "kind", "1" * 30, "5.00 ms")), 20)[:3] == [
        "NAME" + " " * 4 + " " * 25 + "CALLS",
        "a_long  " + "1" * 30,
        "er_nam",
    ]


def test_without_an_edge_a_row_is_a_line_and_one_long_name_does_not_make_all_lines_long() -> None:
    long = "f" * 5000
    head, first, second = lines(table((long, "kind", "7", ""), ("main", "kind", "8", "")), UNBOUNDED)
    assert first.split() == [long, "kind", "7"]
    assert second.split() == ["main", "kind", "8"] and len(second) < 200 and second.index("kind") == head.index("KIND")


def test_styles_reach_a_terminal_and_other_text_is_taken_literally() -> None:
    made = TextTable(Column("STATE"), Column("NAME"))
    made.add_row(Text("failed", "red"), "operator[bold]\n")
    out = StringIO()
    Console(width=80, file=out, force_terminal=True, color_system="standard", _environ={}).print(made)
    assert "\x1b[31mfailed\x1b[0m  operator[bold]\\x0a\n" in out.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_session_can_be_copied_from_the_list(width: int) -> None:
    shown = lines(session_table(SESSIONS), width)
    starts = [line.split()[0] for line in shown if line.startswith("20261130")]
    assert starts == [one.session_id for one in SESSIONS]
    text = " ".join(shown)
    assert "…" not in text
    for numbers in ("584,166", "7,479", "25.51 ms", "2.0 MiB (94.3 %)"):
        assert numbers in text or (width < 160 and "no room for" in text)
    if width == UNBOUNDED:
        assert len(shown) == 3 and "t" * 200 in text


def test_nothing_decoded_is_no_instructions_and_not_decoded_yet_is_unknown() -> None:
    def counted(state: str) -> str:
        return lines(session_table([ListedSession("nodes/n1/sessions/s", state, target="t")]), UNBOUNDED)[1]

    assert counted("DECODED").split() == ["s", "t", "decoded", "0", "B", "0", "0", "0"]
    assert counted("STORED").split() == ["s", "t", "stored", "0", "B", "0"]


@pytest.mark.parametrize("width", WIDTHS)
def test_an_operation_can_be_copied_from_the_list(width: int) -> None:
    name = "operations/01a22d6701be-d869c6a2aa7b4c2f"
    wish = coverage_pb2.CoverageRequest(target=coverage_pb2.Target(process_name="p" * 100))
    operation = operation_pb2.Operation(name=name, caller="pager", done=True)
    operation.request.Pack(coverage_pb2.StartCoverageRequest(coverage=wish))
    assert lines(operation_table([operation]), width)[1].split()[0] == name


@pytest.mark.parametrize("width", WIDTHS)
def test_names_and_sessions_of_coverage_and_diff_stand_whole(width: int) -> None:
    found = coverage_pb2.GetCoverageResponse()
    session, name = "nodes/a-long-name-of-a-node/sessions/20261130-170055-3c382eea", "a_function_of_a_long_name"
    found.replicas.add(session=session, raw_bytes=1 << 20, functions=1000, edges=5000)
    found.functions.add(name=name, module="/lib/" + "m" * 60, calls=10**9, self_instructions=10**12)
    answer = coverage_pb2.DiffCoverageResponse(functions_total=1, a=[session])
    answer.functions.add(name=name, module="/lib/" + "m" * 60, count_a=10**12, share_a=1, only_in="a")
    for parts in (coverage_text(found), diff_text(answer, "instructions")):
        shown = lines(parts, width)
        assert "".join(line.split("  ")[0] for line in shown).count(name) == 1
        assert "1,000,000,000,000" in " ".join(shown)
    assert any(line.startswith(session) for line in lines(coverage_text(found), width))
    # The terminal itself folds it.
    assert f"A: {session}" in lines(diff_text(answer, "instructions"), width)
