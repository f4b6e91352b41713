"""An event on each core that counts nothing and tells who maps code, forks or begins another program, as it happens.

It tells of all processes, and whoever reads leaves out the others. It costs nothing at a switch of threads, and a
record where one of these things happens.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from permille.controller.domain import perf_layout as perf
from permille.controller.domain import perf_records
from permille.controller.domain.image_events import ImageEvent, image_event
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.perf_clock import PerfClock
from permille.controller.domain.perf_events import IMAGE, SAMPLED, USER_CODE, open_event, refused
from permille.controller.domain.perf_layout import Attr, Record
from permille.mesh.errors import PermilleError

# Of three sessions at once below what the kernel lets each user have of each core (perf_event_mlock_kb, 516).
RING_BYTES = 1 << 17


class ImageWatch:
    """From its making on; not to be shared among threads. `missed`: why not everything is told, for people.

    Nothing is where the kernel does not let perf be used, or does not keep time by the TSC.
    """

    def __init__(self, cores: Iterable[int], open_clock: Callable[[], PerfClock] = PerfClock) -> None:
        self.missed = ""
        self._opened = ExitStack()
        self._rings: list[mmap.mmap] = []
        try:
            self._clock = open_clock()
            self._opened.callback(self._clock.close)
            for core in cores:
                self._watch(core)
        except PermilleError as error:
            self.close()
            self.missed = error.because if isinstance(error, NotOnThisMachine) else error.message

    def take(self) -> Iterator[ImageEvent]:
        """What is new, core by core."""
        for ring in self._rings:
            for record in perf_records.parse(perf_records.take(ring)):
                if record.kind == Record.LOST:
                    self.missed = perf_records.NO_ROOM
                event = image_event(record, self._clock.tsc)
                if event is not None:
                    yield event

    def close(self) -> None:
        """Gives everything back; any number of times."""
        self._rings.clear()
        self._opened.close()

    def _watch(self, core: int) -> None:
        attr = Attr(type=perf.TYPE_SOFTWARE, config=perf.COUNT_SW_DUMMY, sample_type=SAMPLED, flags=IMAGE | USER_CODE)
        try:
            file = open_event(attr, -1, core)
            self._opened.callback(os.close, file)
            ring = mmap.mmap(file, mmap.PAGESIZE + RING_BYTES)
        except OSError as error:
            raise refused(error) from None
        self._opened.callback(ring.close)
        self._rings.append(ring)
