"""docs/user-guide.md tells what the command can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from permille.cli.application import COMMANDS

GUIDE = (Path(__file__).parents[2] / "docs/user-guide.md").read_text()


def options(command: Any) -> Iterator[str]:
    """The long names of its options, and of those of the commands below it."""
    for below in getattr(command, "commands", {}).values():
        yield from options(below)
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            yield from (name for name in parameter.opts if name.startswith("--") and name != "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_the_guide(name: str) -> None:
    told = set(re.findall(r"--[a-z][a-z-]*", GUIDE))
    command = typer.main.get_command(import_module(COMMANDS[name]).app)
    assert set(options(command)) - told == set()
