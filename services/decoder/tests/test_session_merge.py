"""What is known of a session while its parts come."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from permille.decoder.domain.function_numbers import FunctionKey, function_number
from permille.decoder.domain.manifest import read_manifest
from permille.decoder.domain.part_record import FUNCTIONS, DecodedSegment, PartRecord
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


async def test_parts_get_the_same_numbers_where_some_have_theirs_already(
    store_session: Callable[..., Awaitable[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("permille.decoder.domain.function_numbers._BITS", 2)
    one = FunctionKey("m", 1, "one")
    other = next(
        key
        for key in (FunctionKey("m", address, "other") for address in count(2))
        if function_number(key) == function_number(one)
    )
    merge = SessionMerge(read_manifest(json.dumps(await store_session()).encode(), "key"), Categories())

    def add(segment: int, key: FunctionKey, number: int) -> None:
        named = key._asdict() | {"function": number}
        columns = [pa.array([named.get(field.name)], field.type) for field in FUNCTIONS]
        functions = pa.table(columns, schema=FUNCTIONS)
        merge.add(PartRecord("recording", (DecodedSegment(segment, 0, 0.0, {}),), (), (), {}, functions))

    add(0, one, function_number(one))
    add(1, other, function_number(other))
    add(2, other, function_number(other))
    moved, parts = merge.renumbered()
    assert parts == [(1,), (2,)]
    add(2, other, moved[other])
    assert merge.renumbered() == (moved, [(1,)])
    add(1, other, moved[other])
    assert merge.renumbered() == ({}, [])
