"""What malloc keeps for later, given back to the system: a service waits most of its time."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """After something that took much and is over; some ms. Does nothing where malloc is not glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
