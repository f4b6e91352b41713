"""What is said of rows that a table does not show."""

from __future__ import annotations

from permille.cli.rendering.units import count

# In one answer, as the API has it.
MOST_ROWS = 10_000
# That an export can be asked for; more are there only in all of them.
MOST_CALLS = (1 << 63) - 1


def more_text(shown: int, total: int, option: str) -> str | None:
    """How many rows there are besides, and which `option` shows them; None when all are shown."""
    if shown >= total:
        return None
    rest = f"{count(total - shown)} more"
    if total <= MOST_ROWS:
        return f"{rest}: {option} {total} shows all"
    return rest if shown >= MOST_ROWS else f"{rest}: {option} {MOST_ROWS} shows the first {count(MOST_ROWS)}"
