"""What the processes of a recording by cores have mapped, and what their threads are called.

The kernel tells it where it lets perf be used. Where it does not, and where something of it found no room, it is looked
at while the recording goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from permille.controller.domain import processes
from permille.controller.domain.image_events import Forked, ImageEvent, InOrder, Mapped, Named
from permille.controller.domain.kept_files import KeptFiles
from permille.controller.domain.process_image import ProcessImage
from permille.controller.domain.recording import ProcessChanges

# What comes and goes in between is not seen, unless it is told.
LOOK_S = 0.1
# Of a core at most, to read generated code again and again; and so much at once, since switch records wait meanwhile.
CODE_SHARE = 0.02
CODE_STEP_S = 0.01
# Each is some hundred bytes of a session. A program that maps again and again must not fill the node.
MOST_CHANGES = 1 << 17
_FOR_EVER = 1 << 64


class TargetImages:
    """`pids`: those that it begins with; `now`: in ticks of the TSC. `tell` is called from the first look on, or
    `missed` says why not."""

    def __init__(self, pids: Sequence[int], now: Callable[[], int]) -> None:
        self._now = now
        self._missed = ""
        self._events = InOrder()
        self._files = KeptFiles()
        self._images = {pid: ProcessImage(pid, now, files=self._files) for pid in pids}
        # When each was known: it had been forked by then.
        self._since = dict.fromkeys(pids, now())
        self._alive = set(pids)
        # Numbers that by now are those of others.
        self._strangers: set[int] = set()
        self._changes = 0
        self._looked = 0.0
        # Those whose generated code is being read, how long that took until now, and when to begin anew.
        self._unread: list[ProcessImage] = []
        self._read_s = 0.0
        self._read_due = 0.0
        # By pid and tid: another process may take the number over.
        self.thread_names: dict[tuple[int, int], str] = {}

    @property
    def pids(self) -> list[int]:
        return list(self._images)

    def look(self) -> None:
        self._looked = time.monotonic()
        self._name_threads()
        for image in self._own():
            image.look()

    def tell(self, events: Iterable[ImageEvent], until: int) -> None:
        """What happened, of any process; `until`: before it was asked for. What comes later is from behind that."""
        for event in self._events.until(until, events):
            self._take(event)

    def missed(self, why: str) -> None:
        """Things happen that are not told: from now on they are looked for."""
        if not self._missed:
            self._missed, self._looked = why, 0.0

    def follow(self, pid: int) -> None:
        """A process that nobody told of is looked at as soon as it is heard of."""
        if pid not in self._images:
            self._image(pid, self._now()).look()

    def keep_up(self, *, ended: bool) -> None:
        """Looks when it is time to; at the end it takes what will not be there for long."""
        if ended:
            self.tell((), _FOR_EVER)
            self.look()
            for image in self._own():
                image.read_code()
            return
        if time.monotonic() - self._looked > LOOK_S:
            if self._missed:
                self.look()
            else:
                self._looked = time.monotonic()
                self._name_threads()
        self._read_some_code()

    def changes(self) -> Iterator[ProcessChanges]:
        for pid, image in self._images.items():
            yield ProcessChanges(pid, list(image.roots()), image.changes())

    def notes(self) -> Iterator[str]:
        """What may be missing, for people."""
        if self._missed:
            yield (
                f"what the target mapped was looked for every {LOOK_S * 1000:.0f} ms and not told by the kernel"
                f" ({self._missed}): what came and went in between may be missing, or be told of other code"
            )
        if self._changes >= MOST_CHANGES:
            yield (
                f"what the target mapped is known up to its change {MOST_CHANGES:,}: what came later may be missing, or"
                " be told of other code; trace for a shorter time"
            )
        if self._files.note:
            yield self._files.note
        if pages := sum(image.written_over for image in self._images.values()):
            yield (
                f"the target wrote over {pages:,} pages of code that it had generated: what ran there between two looks"
                " at them may be missing, or be told of other code"
            )

    def _take(self, event: ImageEvent) -> None:
        match event:
            case Mapped(tsc, pid, mapping) if self._owns(pid):
                if self._changes < MOST_CHANGES:
                    self._changes += self._images[pid].map(mapping, tsc)
            case Forked(tsc, pid, tid, parent_pid, parent_tid) if self._owns(parent_pid):
                if (parent_pid, parent_tid) in self.thread_names:
                    self.thread_names[pid, tid] = self.thread_names[parent_pid, parent_tid]
                if pid != parent_pid and self._changes < MOST_CHANGES:
                    self._strangers.discard(pid)
                    self._changes += self._image(pid, tsc).fork(self._images[parent_pid], tsc)
            case Forked(tsc, pid) if tsc > self._since.get(pid, tsc):
                self._strangers.add(pid)
            case Named(_, pid, tid, name, program) if self._owns(pid):
                self.thread_names[pid, tid] = name
                if program:
                    self._images[pid].begin()

    def _read_some_code(self) -> None:
        if not self._unread and time.monotonic() >= self._read_due:
            self._unread, self._read_s = list(self._own()), 0.0
        begin, used_s = time.thread_time(), 0.0
        while self._unread and used_s < CODE_STEP_S:
            image = self._unread.pop()
            if self._owns(image.pid):
                image.read_code()
            used_s = time.thread_time() - begin
            if not self._unread:
                self._read_due = time.monotonic() + max(LOOK_S, (self._read_s + used_s) / CODE_SHARE)
        self._read_s += used_s

    def _owns(self, pid: int) -> bool:
        return pid in self._images and pid not in self._strangers

    def _own(self) -> Iterator[ProcessImage]:
        return (image for pid, image in self._images.items() if self._owns(pid))

    def _image(self, pid: int, since: int) -> ProcessImage:
        self._alive.add(pid)
        self._since.setdefault(pid, since)
        return self._images.setdefault(pid, ProcessImage(pid, self._now, files=self._files))

    def _name_threads(self) -> None:
        """Of those that are still there: what a process that is gone was called has been told."""
        for pid in self._alive - self._strangers:
            names = processes.thread_names(pid)
            self.thread_names.update({(pid, tid): name for tid, name in names.items()})
            if not names:
                self._alive.remove(pid)
