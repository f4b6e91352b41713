"""What the processes of a recording by cores have mapped, and what their threads are called: nobody tells it
completely, so it is looked at while the recording goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from permille.controller.domain import processes
from permille.controller.domain.process_image import ProcessImage
from permille.controller.domain.recording import ImageChange

# What comes and goes in between is not seen, unless something tells that there is news.
LOOK_S = 0.1


class TargetImages:
    """`pids`: those that it begins with; `now`: in ticks of the TSC."""

    def __init__(self, pids: Sequence[int], now: Callable[[], int]) -> None:
        self._now = now
        self._images = {pid: ProcessImage(pid, now) for pid in pids}
        self._looked = 0.0
        self.thread_names: dict[int, str] = {}

    @property
    def pids(self) -> list[int]:
        return list(self._images)

    def look(self) -> None:
        self._looked = time.monotonic()
        self._name_threads()
        for image in self._images.values():
            image.look()

    def follow(self, pid: int) -> None:
        """A fork is looked at as soon as it is heard of."""
        if pid not in self._images:
            self._images[pid] = ProcessImage(pid, self._now)
            self.has_news()

    def has_news(self) -> None:
        self._looked = 0.0

    def keep_up(self, *, ended: bool) -> None:
        """Looks when it is time to; at the end it takes what will not be there for long."""
        if ended:
            self._name_threads()
            for image in self._images.values():
                image.read_code()
        elif time.monotonic() - self._looked > LOOK_S:
            self.look()

    def changes(self) -> Iterator[tuple[int, Iterator[ImageChange]]]:
        for pid, image in self._images.items():
            yield pid, image.changes()

    def _name_threads(self) -> None:
        for pid in self._images:
            self.thread_names.update(processes.thread_names(pid))
