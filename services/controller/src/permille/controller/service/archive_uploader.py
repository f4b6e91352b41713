"""From a session's folder into the object store: binaries once, the manifest last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import zstandard
from permille.controller.domain.archive import BINARIES, archive_files, raw_key
from permille.controller.domain.archive_file import COMPRESSION_LEVEL
from permille.controller.domain.binaries import identify
from permille.controller.domain.named_file import opened_file
from permille.controller.domain.session import Session

if TYPE_CHECKING:
    from permille.mesh.store import ObjectStore

CHUNK = 1 << 20

_log = structlog.get_logger(__name__)


async def upload(store: ObjectStore, session: Session, folder: Path) -> None:
    """Idempotent: whatever was stored before is stored again or left. Raises PermilleError as the store does."""
    for key, path in json.loads((folder / BINARIES).read_text()).items():
        await upload_binary(store, key, Path(path))
    for file in archive_files(folder):
        await store.put_stream(raw_key(session, file.name), await contents(file))


async def upload_binary(store: ObjectStore, key: str, path: Path) -> None:
    if await store.exists(key):
        return
    try:
        with opened_file(path) as file:
            if not await asyncio.to_thread(still_is, file, key):
                raise FileNotFoundError(path)
            await store.put_stream(key, compressed(file))
    except (FileNotFoundError, PermissionError):
        # Replaced since it was mapped: the decoder says that it is missing.
        _log.warning("a binary is gone before it could be stored", path=str(path), key=key)


async def contents(path: Path) -> AsyncIterator[bytes] | bytes:
    """Small files whole: most of them are, and each piece is a way from thread to thread."""
    status = await asyncio.to_thread(path.stat)
    return await asyncio.to_thread(path.read_bytes) if status.st_size <= CHUNK else pieces(path)


async def pieces(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, CHUNK):
            yield piece


async def compressed(path: Path) -> AsyncIterator[bytes]:
    compressor = zstandard.ZstdCompressor(COMPRESSION_LEVEL).compressobj()
    async for piece in pieces(path):
        packed = await asyncio.to_thread(compressor.compress, piece)
        if packed:
            yield packed
    yield compressor.flush()


def still_is(path: Path, key: str) -> bool:
    """Whether the file is what it was named for; the debug file of a binary without build id bears no name."""
    named = key.removesuffix(".debug")
    return identify(path).key == named or (named != key and named.startswith("binaries/sha256-"))
