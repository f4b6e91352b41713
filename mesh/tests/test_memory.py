"""What is given back when something is over."""

from __future__ import annotations

import ctypes
import decimal
import gc
import weakref
from pathlib import Path

import psutil
from permille.mesh.memory import give_back


def test_what_refers_to_itself_is_given_back_too() -> None:
    class Ring:
        pass

    gc.disable()
    try:
        ring = Ring()
        ring.itself = ring  # type: ignore[attr-defined]
        left = weakref.ref(ring)
        del ring
        assert left() is not None
        give_back()
        assert left() is None
    finally:
        gc.enable()


def test_code_that_only_the_beginning_needed_is_given_back_and_comes_back_when_it_runs() -> None:
    def mapped_bytes() -> int:
        return sum(entry.rss for entry in psutil.Process().memory_maps() if "_decimal" in entry.path)

    def calculated() -> str:
        with decimal.localcontext(prec=5000):
            return str(decimal.Decimal(2).sqrt() ** 3 / decimal.Decimal(7).ln())

    before, had = calculated(), mapped_bytes()
    give_back()
    assert mapped_bytes() < had
    assert calculated() == before


def test_code_that_a_debugger_has_changed_stays_as_it_is() -> None:
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.getsid, ctypes.c_void_p).value
    assert address is not None
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        was = memory.read(1)
        memory.seek(address)
        memory.write(b"\xcc")
        give_back()
        memory.seek(address)
        has = memory.read(1)
        memory.seek(address)
        memory.write(was)
    assert has == b"\xcc"
