"""Text of recordings, and of whoever else writes names, as a terminal may have it."""

from __future__ import annotations

import re

# Control characters (ECMA-48: C0, DEL, C1), the ends of lines and paragraphs, what changes the direction of text
# (UAX #9, section 2), and what no encoding has.
_STEERING = "\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_LINE = re.compile(f"[\n{_STEERING}]")
_IN_TEXT = re.compile(f"[{_STEERING}]")


def escaped(name: str) -> str:
    """On one line, with what steers terminals written out, as `\\x1b` or `\\u202e`."""
    return name if name.isprintable() else _IN_LINE.sub(_written_out, name)


def escaped_lines(text: str) -> str:
    """The same of a text that may have several lines."""
    return text if text.isprintable() else _IN_TEXT.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
