"""Names of files and processes, and their arguments, are bytes; answers, tables and archives have Unicode."""

from __future__ import annotations


def unicode_text(text: str) -> str:
    """What is no UTF-8 (surrogates, PEP 383) written out: it could not be sent or stored."""
    return text.encode(errors="backslashreplace").decode()
