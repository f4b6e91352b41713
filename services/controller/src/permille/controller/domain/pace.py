"""Work that is done piece by piece and may have only a part of a core."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator


class Pace:
    """After each piece it waits until the work on it was no more than `share` of the time."""

    def __init__(self, share: float) -> None:
        self.share = share

    def hurry(self) -> None:
        """No more waiting."""
        self.share = 1.0

    def __call__(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces; they are taken by the thread that works on them."""
        used, begin = time.thread_time(), time.monotonic()
        for piece in pieces:
            yield piece
            wait_s = (time.thread_time() - used) / self.share - (time.monotonic() - begin)
            if wait_s > 0 and self.share < 1:
                time.sleep(wait_s)
            used, begin = time.thread_time(), time.monotonic()


AT_ONCE = Pace(1.0)
