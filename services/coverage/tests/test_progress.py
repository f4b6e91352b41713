"""How often the progress of an operation is looked at."""

from __future__ import annotations

from permille.coverage.service.progress import pause_s


def test_however_many_sessions_there_are_about_as_many_are_looked_at_each_second() -> None:
    assert pause_s(1) == pause_s(100) == 0.25
    assert max(parts / pause_s(parts) for parts in range(1, 100_000)) <= 1000.001
