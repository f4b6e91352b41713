"""The events of one recording: one for each thread on each core; those of a core share its ring and its buffer.

With an event for each thread, and not one for each core, nothing but the targets' code is recorded. Threads and
processes that begin later inherit theirs.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from fcntl import ioctl

from permille.controller.domain import perf_layout as perf
from permille.controller.domain import perf_records
from permille.controller.domain.perf_events import open_event, refused
from permille.controller.domain.perf_layout import Attr, Page
from permille.controller.domain.perf_newest import newest, wrapped
from permille.controller.domain.perf_records import PerfRecord
from permille.controller.domain.processes import thread_names
from permille.mesh.errors import NotFound

RING_BYTES = 1 << 20
CHUNK = 1 << 20
# A process that is just being forked by one that inherited its events is not among those that are disabled, and has its
# own enabled as its parent had (kernel/events/core.c of Linux, inherit_event): it is found the next time.
_ENOUGH_TIMES = 3
_UNTIL_BORN_S = 0.005


class PerfSession:
    """Not to be shared among threads. `sizes`: bytes by core, of which powers of two are taken; `snapshot`: a buffer
    that is full is overwritten.

    Raises what `refused` tells, and NotFound (NO_SUCH_PROCESS).
    """

    def __init__(self, attr: Attr, pids: Sequence[int], sizes: Mapping[int, int], *, snapshot: bool = False) -> None:
        self._attr = attr
        self._snapshot = snapshot
        self._files: list[int] = []
        self._rings: dict[int, mmap.mmap] = {}
        self._buffers: dict[int, mmap.mmap] = {}
        self._poll = select.poll()
        try:
            self._open_all(pids, sizes)
        except OSError as error:
            self.close()
            raise refused(error) from None
        except Exception:
            self.close()
            raise

    @property
    def buffers(self) -> dict[int, int]:
        """Bytes by core."""
        return {core: len(buffer) for core, buffer in self._buffers.items()}

    def enable(self) -> None:
        """Raises what `refused` tells."""
        try:
            for file in self._files:
                ioctl(file, perf.IOC_ENABLE, 0)
        except OSError as error:
            raise refused(error) from None

    def disable(self) -> None:
        """When it returns, nothing is written any more; any number of times."""
        for times in range(_ENOUGH_TIMES):
            if times:
                time.sleep(_UNTIL_BORN_S)
            for file in self._files:
                ioctl(file, perf.IOC_DISABLE, 0)

    def all_exited(self) -> bool:
        """Whether every thread, and all that they started, are gone."""
        gone = sum(1 for _, events in self._poll.poll(0) if events & (select.POLLHUP | select.POLLERR))
        return gone == len(self._files)

    def take(self) -> Iterator[PerfRecord]:
        """The records that are new, core by core."""
        for ring in self._rings.values():
            yield from perf_records.parse(perf_records.take(ring))

    def written(self, core: int) -> int:
        """Bytes of packets that a core's buffer holds; but for snapshots a core's recording ends where that does."""
        return len(self._buffers[core]) if self.overwrites(core) else self._head(core)

    def overwrites(self, core: int) -> bool:
        """Whether a core's buffer has not kept what was written first."""
        return self._snapshot and wrapped(self._buffers[core], self._head(core))

    def kept(self, core: int) -> list[tuple[int, int]]:
        """The stretches of a core's buffer, from where to where, that hold its packets. When nothing is written."""
        return newest(self._buffers[core], self._head(core)) if self._snapshot else [(0, self._head(core))]

    def packets(self, core: int) -> Iterator[bytes]:
        """What is kept, in pieces."""
        for begin, end in self.kept(core):
            for at in range(begin, end, CHUNK):
                yield self._buffers[core][at : min(at + CHUNK, end)]

    def close(self) -> None:
        """Ends the recording and gives its memory back."""
        for mapping in (*self._buffers.values(), *self._rings.values()):
            mapping.close()
        for file in self._files:
            os.close(file)
        self._buffers, self._rings, self._files = {}, {}, []

    def _head(self, core: int) -> int:
        head = Page.from_buffer_copy(self._rings[core]).aux_head
        return min(int(head), len(self._buffers[core]))

    def _open_all(self, pids: Sequence[int], sizes: Mapping[int, int]) -> None:
        outputs: dict[int, int] = {}
        for pid in pids:
            known: set[int] = set()
            # Threads that a thread begins after its own event was opened inherit theirs; others are in the next look.
            while new := thread_names(pid).keys() - known:
                known |= new
                for tid in sorted(new):
                    self._open_thread(tid, sizes, outputs)
            if not known:
                raise NotFound(
                    f"process {pid} has ended",
                    reason="NO_SUCH_PROCESS",
                    help="start it again",
                    metadata={"pid": str(pid)},
                )

    def _open_thread(self, tid: int, sizes: Mapping[int, int], outputs: dict[int, int]) -> None:
        for core, size in sorted(sizes.items()):
            try:
                file = open_event(self._attr, tid, core)
            except OSError as error:
                # It has ended, or inherited one from a thread that was opened before: a thread has one alone.
                if error.errno == errno.ESRCH or (error.errno == errno.EBUSY and outputs):
                    return
                raise
            self._files.append(file)
            self._poll.register(file, 0)
            if core in outputs:
                ioctl(file, perf.IOC_SET_OUTPUT, outputs[core])
            else:
                outputs[core] = file
                self._map(file, core, size)

    def _map(self, file: int, core: int, size: int) -> None:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        ring = self._rings[core] = mmap.mmap(file, mmap.PAGESIZE + RING_BYTES, mmap.MAP_SHARED, protection)
        self._buffers[core] = buffer_of(file, ring, 1 << size.bit_length() - 1, snapshot=self._snapshot)


def buffer_of(file: int, ring: mmap.mmap, size: int, *, snapshot: bool) -> mmap.mmap:
    """The AUX area of an event. A writable one keeps what nobody has read: the kernel stops when it is full. One that
    is not is overwritten."""
    for field, value in ((Page.aux_offset, len(ring)), (Page.aux_size, size)):
        ring[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    protection = mmap.PROT_READ if snapshot else mmap.PROT_READ | mmap.PROT_WRITE
    return mmap.mmap(file, size, mmap.MAP_SHARED, protection, offset=len(ring))
