"""Parts of a decode that is over."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from permille.decoder.domain import wanted_decode
from permille.decoder.domain.part_rows import SegmentRows
from permille.decoder.domain.wanted_decode import StillWanted
from permille.mesh.errors import Aborted, Unavailable
from permille.mesh.store import ObjectStore


async def test_who_decodes_hears_that_it_is_over(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put_stream("decodes/d1/begun", b"")
    seldom = StillWanted(store, "decodes/d1/begun")
    monkeypatch.setattr(wanted_decode, "_LOOK_S", 0.0)
    often = StillWanted(store, "decodes/d1/begun")
    often.require()
    await store.delete("decodes/d1/begun")
    seldom.require()
    with pytest.raises(Aborted) as over:
        often.require()
    assert over.value.reason == "DECODE_OVER"


async def test_a_store_that_is_away_meanwhile_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: str) -> None:
        raise Unavailable("away", reason="STORE_UNAVAILABLE", help="look")

    monkeypatch.setattr(wanted_decode, "_LOOK_S", 0.0)
    store: Any = SimpleNamespace(read_plain=away)
    StillWanted(store, "decodes/d1/begun").require()


def test_rows_of_a_decode_that_is_over_are_not_taken() -> None:
    def over() -> None:
        raise Aborted("over", reason="DECODE_OVER", help="nothing")

    part: Any = SimpleNamespace(one_by_one=threading.Lock(), require_wanted=over)
    segment: Any = None
    with pytest.raises(Aborted):
        SegmentRows(part, segment, {}, {}).add({}, {}, {})
