"""An error as people and programs read it."""

from __future__ import annotations

from permille.cli.rendering.terminal_text import escaped, escaped_lines
from permille.mesh.errors import PermilleError


def error_text(error: PermilleError) -> str:
    """What happened, the stable word for it, and the way out; no trace of the program's inside."""
    lines = [f"permille: {_with_names_on_a_line(error.message, error)}"]
    if error.help:
        lines.append(f"  what to do: {_with_names_on_a_line(error.help, error)}")
    if error.retry_after_s is not None:
        lines.append(f"  trying again after {error.retry_after_s:g} s can help")
    if error.reason:
        lines.append(f"  reason: {error.reason}")
    return escaped_lines("\n".join(lines))


def _with_names_on_a_line(text: str, error: PermilleError) -> str:
    # A message has several lines where it shows a place in a text, not because a name has.
    for name in filter(lambda value: "\n" in value, error.metadata.values()):
        text = text.replace(name, escaped(name))
    return text


def error_json(error: PermilleError) -> dict[str, object]:
    """The same for programs: code, reason, message, help, metadata."""
    return {
        "error": {
            "code": error.code.name,
            "reason": error.reason,
            "message": error.message,
            "help": error.help,
            "metadata": error.metadata,
        }
    }
