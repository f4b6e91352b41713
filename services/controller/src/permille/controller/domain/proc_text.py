"""What the kernel tells below /proc, line by line, with whatever names files and control groups have."""

from __future__ import annotations

from pathlib import Path


def text_of(file: Path) -> str:
    """Raises OSError where it cannot be read."""
    # Python's text files take a carriage return for the end of a line too.
    return file.read_bytes().decode(errors="surrogateescape")


def lines_of(text: str) -> list[str]:
    """Without their ends: of a name that stands in one, the kernel escapes the line feed alone (seq_path)."""
    return text.removesuffix("\n").split("\n") if text else []


def unescaped(name: str) -> str:
    """A name of a line with its line feeds. A backslash is not escaped: one in front of 012 is taken for one."""
    return name.replace("\\012", "\n")
