"""The table of function categories: what is built in, and the user's own rules after it."""

from __future__ import annotations

from pathlib import Path

from permille.mesh.errors import InvalidArgument
from permille.ptcore import Categories


def read_categories(file: Path | None) -> Categories:
    """Raises `InvalidArgument` with the file and the line when it cannot be read or holds a line that is no rule."""
    try:
        return Categories(file.expanduser() if file else None)
    except (OSError, ValueError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise InvalidArgument(
            f"the table of function categories cannot be used: {told}",
            reason="CATEGORIES",
            help='a rule is `category  pattern [@ binary]`, one a line; see "Categories" in the user guide',
            metadata={"file": str(file), "key": "decoder.categories"},
        ) from None
