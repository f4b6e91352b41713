"""Cutting a stream into parts of one size."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator


async def stream_of(data: AsyncIterable[bytes] | bytes) -> AsyncIterator[bytes]:
    """The data as a stream whatever it is."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        yield bytes(data)
        return
    async for piece in data:
        yield piece


async def parts_of(data: AsyncIterable[bytes] | bytes, part_bytes: int) -> AsyncIterator[bytes]:
    """The stream in parts of exactly `part_bytes`, but the last; an empty stream is one empty part."""
    held = bytearray()
    sent = False
    async for piece in stream_of(data):
        held += piece
        while len(held) > part_bytes:
            yield bytes(held[:part_bytes])
            del held[:part_bytes]
            sent = True
    if held or not sent:
        yield bytes(held)
