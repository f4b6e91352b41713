"""A name as rich's tables and lines have it."""

from __future__ import annotations

from permille.cli.rendering.terminal_text import escaped
from rich.text import Text


def cell(name: str, style: str = "") -> Text:
    """On one line, without markup and without what steers terminals."""
    return Text(escaped(name), style)
