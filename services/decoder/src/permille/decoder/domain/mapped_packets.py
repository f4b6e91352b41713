"""Packets in a mapped file, which may be larger than the memory there is."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Looking for the places where a stream can be divided reads some gigabytes in a second, before there is any call.
_PAUSE_S = 0.005


@contextmanager
def giving_back(packets: mmap.mmap | bytes) -> Iterator[None]:
    """Gives back the memory of what was read of a mapped file, again and again; it is read anew where it is needed."""
    if not isinstance(packets, mmap.mmap):
        yield
        return
    over = threading.Event()

    def give_back() -> None:
        while not over.wait(_PAUSE_S):
            packets.madvise(mmap.MADV_DONTNEED)

    giving = threading.Thread(target=give_back, name="giving back", daemon=True)
    giving.start()
    try:
        yield
    finally:
        over.set()
        giving.join()
