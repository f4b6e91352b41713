"""How to see the rows that a table does not show."""

from __future__ import annotations

import pytest
from permille.cli.rendering.more_rows import MOST_ROWS, more_text


@pytest.mark.parametrize(
    ("shown", "total", "said"),
    [
        (15, 15, None),
        (15, 10_000, "9,985 more: --top 10000 shows all"),
        # No answer has more.
        (15, 10_001, "9,986 more: --top 10000 shows the first 10,000"),
        (MOST_ROWS, 10_001, "1 more"),
    ],
)
def test_no_more_rows_are_named_than_can_be_asked_for(shown: int, total: int, said: str | None) -> None:
    assert more_text(shown, total, "--top") == said
