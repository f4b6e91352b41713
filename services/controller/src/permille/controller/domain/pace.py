"""Work that is done piece by piece and may have only a part of a core."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

# The longest until one in a hurry is heard.
STEP_S = 0.1


class Pace:
    """After each piece it waits until the work on it was no more than `share` of the time."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._owed_s = 0.0

    def owe(self, used_s: float) -> None:
        """Processor time that the pieces' work has had before them: it is waited for with the first one."""
        self._owed_s += used_s

    def hurry(self) -> None:
        """No more waiting."""
        self.share = 1.0

    def __call__(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces; they are taken by the thread that works on them."""
        used, begin = time.thread_time(), time.monotonic()
        for piece in pieces:
            yield piece
            self._wait(time.thread_time() - used + self._owed_s, begin)
            self._owed_s = 0.0
            used, begin = time.thread_time(), time.monotonic()

    def _wait(self, used_s: float, begin: float) -> None:
        while self.share < 1 and (left_s := used_s / self.share - (time.monotonic() - begin)) > 0:
            time.sleep(min(left_s, STEP_S))


AT_ONCE = Pace(1.0)
