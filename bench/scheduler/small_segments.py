"""A recorded session once more, cut at its PSB packets into many small segments."""

from __future__ import annotations

import hashlib
import json
from itertools import cycle, islice, pairwise

import zstandard
from permille.decoder.domain.archive import SessionArchive, decompressed
from permille.decoder.domain.manifest import Segment, manifest_key
from permille.mesh.store import ObjectStore

# Intel SDM volume 3, "Packet Definitions".
PSB = bytes.fromhex("0282") * 8


async def stream_of(store: ObjectStore, segment: Segment) -> bytes:
    """The raw packets."""
    return b"".join([piece async for piece in decompressed(store, segment.key)])


async def cut(store: ObjectStore, session_id: str, as_session_id: str, count: int) -> None:
    """Stores a session of `count` segments: the pieces from PSB to PSB, from the beginning again when they end."""
    archive = await SessionArchive.open(store, session_id)
    pieces = []
    for segment in archive.manifest.segments:
        stream = await stream_of(store, segment)
        bounds = [*_places(stream), len(stream)]
        pieces += [(segment, begin, stream[begin:end]) for begin, end in pairwise(bounds)]
    segments = []
    for index, (segment, begin, data) in enumerate(islice(cycle(pieces), count)):
        key = f"raw/{as_session_id}/segment-{index}.pt.zst"
        stored = zstandard.compress(data)
        await store.put_stream(key, stored)
        segments.append(
            segment.model_dump()
            | {
                "index": index,
                "key": key,
                "size_bytes": len(data),
                "stored_bytes": len(stored),
                "sha256": hashlib.sha256(data).hexdigest(),
                "epochs": _epochs(segment, begin, len(data)),
                "lost_bytes": 0,
                "lost_blocks": 0,
                "full": False,
            }
        )
    manifest = json.loads(await store.get(manifest_key(session_id)))
    session = manifest["session"].removesuffix(session_id) + as_session_id
    manifest |= {"session": session, "session_id": as_session_id, "segments": segments}
    await store.put_stream(manifest_key(as_session_id), json.dumps(manifest).encode())


def _places(stream: bytes) -> list[int]:
    found = []
    place = stream.find(PSB)
    while place >= 0:
        found.append(place)
        place = stream.find(PSB, place + len(PSB))
    return found


def _epochs(segment: Segment, begin: int, size: int) -> list[list[int]]:
    before = [epoch for offset, epoch in segment.epochs if offset <= begin]
    within = [[offset - begin, epoch] for offset, epoch in segment.epochs if begin < offset < begin + size]
    return [*([[0, before[-1]]] if before else []), *within]
