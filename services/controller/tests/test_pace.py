from __future__ import annotations

import time

import pytest
from permille.controller.domain.pace import AT_ONCE, Pace

PIECES = [b"a", b"b", b"c"]


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_work_has_no_more_of_a_core_than_its_share(share: float) -> None:
    used, begin = time.thread_time(), time.monotonic()
    done = []
    for piece in Pace(share)(PIECES):
        work()
        done.append(piece)
    assert done == PIECES
    assert (time.thread_time() - used) * 0.9 <= share * (time.monotonic() - begin)


def test_so_has_what_the_work_has_used_before_its_pieces() -> None:
    used, begin = time.thread_time(), time.monotonic()
    work()
    pace = Pace(0.2)
    pace.owe(time.thread_time() - used)
    assert list(pace(PIECES)) == PIECES
    assert (time.thread_time() - used) * 0.9 <= 0.2 * (time.monotonic() - begin)


def work() -> None:
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        pass


def test_in_a_hurry_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    pace = Pace(0.001)
    pace.hurry()
    assert list(pace(PIECES)) == list(AT_ONCE(PIECES)) == PIECES
