"""What malloc keeps for later, given back to the system: a service waits most of its time."""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8  # malloc.h


def keep_little() -> None:
    """One heap for all threads, before there are any: for processes whose threads seldom work at the same time.

    By default each thread that allocates has one of its own, and what fragments there stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """After something that took much and is over; some ms. Does nothing where malloc is not glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
