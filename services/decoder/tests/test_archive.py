"""Objects that are packed, as they are read."""

from __future__ import annotations

import zstandard
from permille.decoder.domain.archive import decompressed
from permille.mesh.store import ObjectStore


async def test_what_is_nearly_all_zeros_comes_in_pieces_too(store: ObjectStore) -> None:
    content = bytes(300 << 20) + b"end"
    await store.put_stream("raw/s/code.zst", zstandard.compress(content))
    sizes, last = [], b""
    async for piece in decompressed(store, "raw/s/code.zst"):
        sizes.append(len(piece))
        last = (last + piece[-3:])[-3:]
    assert (sum(sizes), last) == (len(content), b"end")
    assert max(sizes) <= 40 << 20


async def test_what_stands_behind_the_end_is_no_content(store: ObjectStore) -> None:
    await store.put_stream("raw/s/code.zst", zstandard.compress(b"content") + b"behind" * 1_000_000)
    assert b"".join([piece async for piece in decompressed(store, "raw/s/code.zst")]) == b"content"
