"""Names that somebody else chose do nothing to a terminal and keep to their line."""

from __future__ import annotations

import pytest
from permille.cli.invocation import console_for
from permille.cli.rendering.answer_table import print_answer
from permille.cli.rendering.error_text import error_text
from permille.cli.rendering.session_table import session_table
from permille.cli.rendering.terminal_text import escaped, escaped_lines
from permille.cli.session_list import ListedSession
from permille.mesh.errors import NotFound
from rich.console import RenderableType

EVIL = "a\nb\x1b[31m\x07\x9b2J\u202ec\x7f"
WRITTEN_OUT = r"a\x0ab\x1b[31m\x07\x9b2J\u202ec\x7f"


def printed(what: RenderableType, capsys: pytest.CaptureFixture[str]) -> str:
    console_for(False).print(what, markup=False, soft_wrap=True)
    return capsys.readouterr().out


def test_what_steers_a_terminal_is_written_out() -> None:
    assert escaped(EVIL) == WRITTEN_OUT
    assert escaped_lines(EVIL) == WRITTEN_OUT.replace(r"\x0a", "\n")


@pytest.mark.parametrize("name", ["", "std::vector<int>::~vector()", r"C:\x1b", "größe", "名前", "e\u0301", "a\xa0b"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert escaped(name) == escaped_lines(name) == name


def test_tables_keep_a_name_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    session = ListedSession(name="nodes/n/sessions/s", state="DECODED", target=EVIL)
    print_answer(console_for(False), ["name"], lambda: [[[EVIL]]])
    for table in (capsys.readouterr().out, printed(session_table([session]), capsys)):
        head, row = table.splitlines()
        assert WRITTEN_OUT in row
        assert "\x1b" not in head


def test_messages_have_no_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in printed(f"warning: {EVIL}", capsys)
    assert "\x1b" not in error_text(NotFound(f"there is no {EVIL}", reason="X", help=EVIL))
