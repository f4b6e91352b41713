"""What is kept for later, given back to the system: a service waits most of its time."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

M_ARENA_MAX = -8  # malloc.h
MADV_DONTNEED = 4  # linux/mman.h


def keep_little() -> None:
    """One heap for all threads, before there are any: for processes whose threads seldom work at the same time.

    By default each thread that allocates has one of its own, and what fragments there stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """After something that took much and is over; 10 ms and more. Where malloc is not glibc's it keeps what it has."""
    # Python's own arenas go back only when nothing in them is left.
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _forget_code()


def _forget_code() -> None:
    """Unmaps the pages of programs and libraries that only the beginning needed; the others come back when they run.

    They stay in the kernel's cache of files, shared with whoever else runs them, but as long as they are mapped here
    the kernel counts them as this process's, and gives them up late.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None:
        for begin, end in _code():
            madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_DONTNEED)


def _code() -> Iterator[tuple[int, int]]:
    """Begin and end of each mapping of a file's code that is as the file is: what a debugger has changed is not."""
    span = ""
    with suppress(OSError), Path("/proc/self/smaps").open() as mappings:
        for line in mappings:
            if line[:1] in "0123456789abcdef":
                address, rights, _, _, inode, *_ = line.split(maxsplit=5)
                span = address if rights == "r-xp" and inode != "0" else ""
            elif span and line.startswith("Anonymous:") and line.split()[1] == "0":
                begin, _, end = span.partition("-")
                yield int(begin, 16), int(end, 16)
