"""The commands that the documents name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from permille.cli.application import app
from permille.mesh.table_schemas import SCHEMAS
from typer.core import TyperGroup

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Behind a prompt on a line of its own, which may go on in the next, or within a text.
COMMAND = re.compile(r"^\$ permille (.+)$|`permille ([a-z][^`]*)`", re.MULTILINE)


def commands() -> list[str]:
    found = [match for document in DOCUMENTS for match in COMMAND.findall(document.read_text().replace("\\\n", ""))]
    return sorted({line or inline for line, inline in found})


def parsed(words: list[str]) -> Any:
    """The command that takes the words. Raises for words that it would not take."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="permille")
    while isinstance(command, TyperGroup) and words:
        _, command, words = command.resolve_command(context, words)
        context = typer.Context(command, info_name=command.name, parent=context)
    _, left, _ = command.make_parser(context).parse_args(words)
    if left:
        raise ValueError(f"too much: {left}")
    return command


@pytest.mark.parametrize("text", commands())
def test_a_command_in_the_documents_is_one(text: str) -> None:
    words = shlex.split(re.split(r" [|&#] ?|\s+#", text)[0])
    if words[0] == "run":
        words = words[: words.index("--")] if "--" in words else words
    parsed(words)


def test_an_option_that_is_none_is_found() -> None:
    with pytest.raises(Exception, match="--node"):
        parsed(["certs", "service", "--node", "n1"])
    with pytest.raises(ValueError, match="too much"):
        parsed(["doctor", "n1"])


@pytest.mark.parametrize("name", ["query", "export"])
def test_the_help_of_what_reads_tables_names_each_of_them(name: str) -> None:
    command = parsed([name, *(["SELECT 1"] if name == "query" else ["--format", "csv"])])
    told = " ".join([command.help, *(getattr(option, "help", None) or "" for option in command.params)])
    assert set(SCHEMAS) <= set(re.findall(r"\w+", told))
