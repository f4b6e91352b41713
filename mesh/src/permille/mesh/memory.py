"""What malloc keeps for later, given back to the system: a service waits most of its time."""

from __future__ import annotations

import ctypes
import gc

M_ARENA_MAX = -8  # malloc.h


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
