"""Reading a session archive from the object store into local files, each checked against its SHA-256."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard
from permille.decoder.domain.core_segments import divided, to_divide
from permille.decoder.domain.manifest import (
    U64,
    Epoch,
    JitFile,
    Manifest,
    Offset,
    Segment,
    StoredFile,
    checked_manifest,
    manifest_key,
    written_out,
)
from permille.mesh.errors import DataLoss, NotFound, PermilleError
from permille.mesh.store import ObjectStore
from pydantic import TypeAdapter, ValidationError

# What is as small as that is unpacked faster than a thread is asked to.
_AT_ONCE = 1 << 18
# So much is unpacked at a time, which becomes 32 MiB at most, until there is a piece of this size: neither what is
# larger than the manifest says nor what is nearly all zeros comes into memory as a whole.
_SLICE, _PIECE = 1 << 10, 4 << 20
# An import puts packets of its own behind a piece of a stream, which stop the flow there.
_MOST_ADDED = 64


@dataclass(frozen=True)
class MapChange:
    """One change of a process's image. `binary`: the key of the mapped file in the object store, "" for none.

    `code_size`: of an ELF file in the code file, which is mapped. `missing`: why the mapped file could not be had.
    """

    epoch: Epoch
    event: str
    address: U64
    size_bytes: U64
    offset: Offset = 0
    path: str = ""
    build_id: str = ""
    binary: str = ""
    code_offset: Offset = 0
    code_size: Offset = 0
    missing: str = ""
    # When it was seen; 0: from the beginning on, or the epochs of the segments tell.
    tsc: U64 = 0

    def __post_init__(self) -> None:
        """Raises ValueError for addresses that the core does not take."""
        if not 0 < self.size_bytes < (1 << 64) - self.address:
            raise ValueError(f"nothing has {self.size_bytes:,} bytes at {self.address:#x}")


_CHANGES = TypeAdapter(list[MapChange])


class SessionArchive:
    """One session as its recorder left it."""

    def __init__(self, store: ObjectStore, manifest: Manifest, sha256: str) -> None:
        self._store = store
        self.manifest = manifest
        # Of the manifest, which has those of all other files: tells one recording from another.
        self.sha256 = sha256

    @classmethod
    async def open(cls, store: ObjectStore, session_id: str) -> SessionArchive:
        """Raises `NotFound` for a session that is not (wholly) stored, `DataLoss` for a manifest that is damaged."""
        key = manifest_key(session_id)
        try:
            text = await store.get(key)
        except NotFound:
            raise _not_there(session_id, store) from None
        archive = cls(store, await checked_manifest(text, key), hashlib.sha256(text).hexdigest())
        named = archive.manifest.session
        if archive.manifest.session_id != session_id or named.rpartition("/")[2] != session_id:
            # Its rows would take the place of the other one's.
            raise _damaged(key, f"it is that of the session {named}, perhaps a copy")
        if to_divide(archive.manifest):
            archive.manifest = divided(archive.manifest, await archive._switches_or_none())
        return archive

    async def require_there(self) -> None:
        """Raises `NotFound` when the session was deleted meanwhile."""
        session_id = self.manifest.session_id
        if not await self._store.exists(manifest_key(session_id)):
            raise _not_there(session_id, self._store)

    async def fetch_segments(self, stream: Sequence[Segment], to: BinaryIO) -> None:
        """Writes the raw packets of the segments of one object.

        Raises `DataLoss` or `NotFound` when they cannot be had as they were recorded.
        """
        first = stream[0]
        await self._fetch(first.key, first.sha256, to, stored=first.stored_sha256, sizes=self._sizes(stream))

    async def segments_bytes(self, stream: Sequence[Segment]) -> bytes:
        """The raw packets of the segments of one object that memory has room for. Raises as `fetch_segments`."""
        first, sizes = stream[0], self._sizes(stream)
        packed = await self._store.get(first.key, sha256=first.stored_sha256)
        if sizes[-1] <= _AT_ONCE:
            return _unpacked(first, packed, sizes)
        return await asyncio.to_thread(_unpacked, first, packed, sizes)

    async def fetch_code(self, to: BinaryIO) -> None:
        """Writes the bytes of code that no file backs. Raises as `fetch_segments`."""
        await self._fetch(self.manifest.code.key, self.manifest.code.sha256, to)

    async def fetch_jit(self, file: JitFile, to: BinaryIO) -> None:
        """Writes a perf map or a jitdump. Raises as `fetch_segments`."""
        await self._fetch(file.key, file.sha256, to)

    async def switches(self) -> bytes:
        """The 24-byte switch records. Raises `DataLoss` when they are damaged."""
        return await self._small(self.manifest.switches)

    async def _switches_or_none(self) -> bytes:
        try:
            return await self.switches()
        except PermilleError as error:
            if not is_lost(error):
                raise
            return b""

    async def maps(self) -> dict[int, list[MapChange]]:
        """The image changes of each process, by pid, in the order of their epochs. Raises `DataLoss`."""
        key = self.manifest.maps.key
        text = await self._small(self.manifest.maps)
        try:
            return {int(process["pid"]): _changes(process) for process in json.loads(text)["processes"]}
        except ValidationError as error:
            first = error.errors()[0]
            raise _damaged(key, f"change {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise _damaged(key, f"it is no list of mappings: {error!r}") from None

    def _sizes(self, stream: Sequence[Segment]) -> range:
        """How many bytes of packets the object may have."""
        told = sum(segment.size_bytes for segment in stream)
        return range(told, told + 1 + (_MOST_ADDED if self.manifest.imported else 0))

    async def _small(self, file: StoredFile) -> bytes:
        data = await self._store.get(file.key)
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise _damaged(file.key, "its SHA-256 is not the manifest's")
        return data

    async def _fetch(
        self, key: str, sha256: str, to: BinaryIO, *, stored: str = "", sizes: range | None = None
    ) -> None:
        digest, size = hashlib.sha256(), 0
        async for piece in decompressed(self._store, key, sha256=stored, most=sizes[-1] if sizes else None):
            if not stored:
                digest.update(piece)
            await asyncio.to_thread(to.write, piece)
            size += len(piece)
        await asyncio.to_thread(to.flush)
        if sizes is not None:
            _require_size(key, size, sizes)
        if not stored and digest.hexdigest() != sha256:
            raise _damaged(key, "the SHA-256 of its content is not the manifest's")


async def decompressed(
    store: ObjectStore, key: str, *, sha256: str = "", most: int | None = None
) -> AsyncIterator[bytes]:
    """The content of an object compressed with zstd, in pieces. Raises `DataLoss` when it is none or is cut off.

    `sha256`: see `ObjectStore.open_read`. `most`: what is larger, in bytes, is damaged too.
    """
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    size = 0
    try:
        async for packed in store.open_read(key, sha256=sha256):
            while packed:
                data, packed = await asyncio.to_thread(_some, decompressor, packed)  # noqa: PLW2901 - what is left
                size += len(data)
                if most is not None and size > most:
                    raise _damaged(key, f"it has more than the {most:,} bytes that the manifest says")
                yield data
    except zstandard.ZstdError as error:
        raise _damaged(key, f"it cannot be decompressed: {error}") from None
    if not decompressor.eof:
        raise _damaged(key, "the compressed stream is cut off")


def _unpacked(segment: Segment, packed: bytes, sizes: range) -> bytes:
    try:
        told = zstandard.frame_content_size(packed)
        if told >= 0:
            _require_size(segment.key, told, sizes)
        # Into one piece of memory, where the segment is all of the object.
        data: bytes = zstandard.ZstdDecompressor().decompress(packed, max_output_size=sizes[-1])
    except zstandard.ZstdError:
        data = _unpacked_in_slices(segment, packed, sizes)
    _require_size(segment.key, len(data), sizes)
    if not segment.stored_sha256 and hashlib.sha256(data).hexdigest() != segment.sha256:
        raise _damaged(segment.key, "the SHA-256 of its content is not the manifest's")
    return data


def _unpacked_in_slices(segment: Segment, packed: bytes, sizes: range) -> bytes:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        data, _ = _some(decompressor, packed, sizes[-1] + 1)
    except zstandard.ZstdError as error:
        raise _damaged(segment.key, f"it cannot be decompressed: {error}") from None
    if not decompressor.eof and len(data) <= sizes[-1]:
        raise _damaged(segment.key, "the compressed stream is cut off")
    return data


def _some(decompressor: zstandard.ZstdDecompressionObj, packed: bytes, enough: int = _PIECE) -> tuple[bytes, bytes]:
    """What the first of it becomes, up to its end or `enough` bytes and little more; and the rest of it."""
    data, end = bytearray(), 0
    while end < len(packed) and len(data) < enough and not decompressor.eof:
        data += decompressor.decompress(packed[end : end + _SLICE])
        end += _SLICE
    return bytes(data), b"" if decompressor.eof else packed[end:]


def _require_size(key: str, size: int, sizes: range) -> None:
    if size not in sizes:
        found = "less" if size < sizes[0] else "more"
        raise _damaged(key, f"it has {found} than the {sizes[0]:,} bytes that the manifest says")


def is_lost(error: PermilleError) -> bool:
    """Whether the error says that stored data are gone for good, rather than away for now."""
    # What a damaged manifest names may be no key at all.
    return isinstance(error, (DataLoss, NotFound)) or error.reason == "BAD_OBJECT_KEY"


def _changes(process: dict[str, Any]) -> list[MapChange]:
    return sorted(_CHANGES.validate_python(written_out(process["changes"])), key=lambda change: change.epoch)


def _not_there(session_id: str, store: ObjectStore) -> NotFound:
    return NotFound(
        f"the session {session_id} is not in the object store {store.url}",
        reason="SESSION_NOT_FOUND",
        help="`permille sessions` lists those there are; a session appears when it is stored as a whole",
        metadata={"session_id": session_id},
    )


def _damaged(key: str, how: str) -> DataLoss:
    return DataLoss(
        f"{key} is damaged: {how}",
        reason="ARCHIVE_DAMAGED",
        help="restore it from a backup of the object store, or record again",
        metadata={"key": key},
    )
