"""The table of function categories: what is built in, and the user's own rules after it."""

from __future__ import annotations

from pathlib import Path

from permille.mesh.errors import InvalidArgument
from permille.ptcore import Categories


def read_categories(file: Path | None) -> Categories:
    """Raises `InvalidArgument` with the file and the line when it cannot be read or holds a line that is no rule."""
    table = file.expanduser() if file else None
    # Of a device or a pipe the end may never come.
    if table and table.exists() and not (table.is_file() or table.is_dir()):
        raise _unusable(table, f"{table} is a device or a pipe: name a file")
    try:
        return Categories(table)
    except (OSError, ValueError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise _unusable(table, told) from None


def _unusable(table: Path | None, told: str) -> InvalidArgument:
    return InvalidArgument(
        f"the table of function categories cannot be used: {told}",
        reason="CATEGORIES",
        help='a rule is `category  pattern [@ binary]`, one a line; see "Categories" in the user guide',
        metadata={"file": str(table), "key": "decoder.categories"},
    )
