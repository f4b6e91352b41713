"""What is given back when something is over."""

from __future__ import annotations

import gc
import weakref

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
