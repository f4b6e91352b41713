"""What is known of a session while its parts come."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from permille.decoder.domain.manifest import read_manifest
from permille.decoder.domain.part_record import DecodedSegment, PartRecord
from permille.decoder.domain.session_merge import SessionMerge
from permille.ptcore import Categories


async def test_what_many_parts_have_told_of_is_known_without_asking_them_again(
    store_session: Callable[..., Awaitable[dict[str, Any]]],
) -> None:
    asked = count()

    class Record(PartRecord):
        @property
        def segments(self) -> set[int]:
            next(asked)
            return super().segments

    manifest = await store_session()
    named = [manifest["segments"][0] | {"index": index, "key": f"segment-{index}"} for index in range(101)]
    merge = SessionMerge(read_manifest(json.dumps(manifest | {"segments": named}).encode(), "key"), Categories())
    for index in range(99):
        record = Record("recording", (DecodedSegment(index, 0, 0.0, {}),), (), (), {})
        assert not merge.overlaps(record)
        merge.add(record)
        assert merge.overlaps(record)
    merge.lose(merge.manifest.segments[99], "its worker died", "report it")
    assert [segment.index for segment in merge.manifest.segments if not merge.knows(segment)] == [100]
    assert next(asked) <= 99 * 4
