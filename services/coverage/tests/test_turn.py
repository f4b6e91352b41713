"""How long one waits for one's turn."""

from __future__ import annotations

from permille.coverage.service.turn import Turn


def test_who_waits_gives_up_when_nothing_has_moved_for_the_whole_patience() -> None:
    clock = [0.0]
    turn = Turn(120, lambda: clock[0])
    for clock[0], holder, may_come in (
        (0.0, "first", True),
        (120.0, "first", True),
        (121.0, "second", True),
        (241.0, "second", True),
        (241.5, "second", False),
        (242.0, "third", True),
    ):
        assert turn.may_come({"nodes/n1": holder}) is may_come
    # Of several each that moves is a hope.
    assert turn.may_come({"nodes/n1": "third", "nodes/n2": "first"})
    clock[0] = 400.0
    assert turn.may_come({"nodes/n2": "first"})
