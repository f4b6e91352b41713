"""Receiving a recording made elsewhere as a session, file by file, the manifest last (docs/design/0007-import.md)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import structlog
import zstandard
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.imported_manifest import completed
from permille.decoder.domain.manifest import Manifest, checked_manifest, manifest_key
from permille.decoder.domain.uninterrupted import uninterrupted
from permille.mesh.errors import InvalidArgument, NotFound, PermilleError, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.store import ObjectInfo, ObjectStore

# Where the files of an upload are: of two of one session, one is found by the manifest.
_FOLDER = re.compile(r"raw/([^/]+)/[0-9a-f]{16}")
_NAME = re.compile(r"nodes/imported/sessions/([a-z0-9-]{1,63})")
_FILE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_MANIFEST = "manifest.json"
_MOST_MANIFEST_BYTES = 512 << 20
_LEVEL = 3
# An upload of which nothing was heard for so long is over.
_ABANDONED_S = 2 * 3600.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ReceivedFile:
    """Where a file was put; size and SHA-256 of what was sent, and those in the store."""

    key: str
    size_bytes: int
    sha256: str
    stored_bytes: int
    stored_sha256: str


class SessionUpload:
    """Puts a session into the store, and into the list that controllers read. Half a session is none."""

    def __init__(self, store: ObjectStore, etcd: Etcd) -> None:
        self._store = store
        self._etcd = etcd

    async def receive(
        self, requests: AsyncIterator[decoder_pb2.UploadSessionRequest]
    ) -> decoder_pb2.UploadSessionResponse:
        """Raises `InvalidArgument` for what is no whole session, and what the store raises when it is away or full.

        The requests of a client that goes away end. Nothing else ends this: what is being put may come behind whatever
        is removed then, and a manifest without its files is a session that nobody can import again.
        """
        return await uninterrupted(self._receive(requests))

    async def _receive(
        self, requests: AsyncIterator[decoder_pb2.UploadSessionRequest]
    ) -> decoder_pb2.UploadSessionResponse:
        first = await anext(requests, None)
        name, session_id = _session(first.session if first is not None else "")
        known = await self._known(name, session_id)
        if known is not None or first is None:
            return known or decoder_pb2.UploadSessionResponse()
        await self._sweep(session_id)
        folder = f"raw/{session_id}/{secrets.token_hex(8)}/"
        committed = False
        try:
            text, files = await self._files(_Pieces(first, requests), folder)
            manifest = await asyncio.to_thread(completed, text, name, files)
            # The same recording may have come by another way meanwhile.
            known = await self._known(name, session_id)
            if known is None:
                await self._require_there(folder, files)
                known = await self._commit(manifest, name, session_id)
                committed = True
            return known
        finally:
            if not committed:
                await self._remove(folder)

    async def _known(self, name: str, session_id: str) -> decoder_pb2.UploadSessionResponse | None:
        try:
            text = await self._store.get(manifest_key(session_id))
        except NotFound:
            return None
        return _response(name, text, await checked_manifest(text, name), existed=True)

    async def _files(self, pieces: _Pieces, folder: str) -> tuple[bytes, dict[str, ReceivedFile]]:
        files: dict[str, ReceivedFile] = {}
        while pieces.file != _MANIFEST:
            name = pieces.file
            if not _FILE.fullmatch(name) or name in files:
                raise _refused(f"{name!r} cannot be the name of the next file", "file")
            content = _Content(pieces, packed=name.endswith(".zst"))
            stored = await self._store.put_stream(folder + name, content.stream())
            files[name] = ReceivedFile(
                folder + name, content.size, content.digest.hexdigest(), stored.size_bytes, stored.sha256
            )
        text = bytearray()
        async for data in pieces.of_file():
            text += data
            if len(text) > _MOST_MANIFEST_BYTES:
                raise _refused(f"the manifest is larger than {_MOST_MANIFEST_BYTES >> 20} MiB", "data")
        return bytes(text), files

    async def _require_there(self, folder: str, files: dict[str, ReceivedFile]) -> None:
        """One that took longer than `_ABANDONED_S` over a file is taken for abandoned. Raises `Unavailable`."""
        there = {info.key async for info in self._store.list(folder)}
        if not there.issuperset(file.key for file in files.values()):
            raise Unavailable(
                "files of this upload were removed meanwhile: for two hours none of them had come whole",
                reason="UPLOAD_ABANDONED",
                help="upload it again, over a faster connection or in shorter recordings",
                retry_after_s=5,
            )

    async def _commit(self, manifest: dict[str, Any], name: str, session_id: str) -> decoder_pb2.UploadSessionResponse:
        text = (await asyncio.to_thread(json.dumps, manifest)).encode()
        key = manifest_key(session_id)
        checked = await checked_manifest(text, key)
        listed = _listed(checked)
        await self._store.put_stream(key, text)
        try:
            await self._etcd.put(f"/permille/v1/{name}", listed)
        except BaseException:
            # What nobody can find must not be there.
            await self._store.delete(key)
            raise
        return _response(name, text, checked, existed=False)

    async def _sweep(self, session_id: str) -> None:
        before_ns = time.time_ns() - round(_ABANDONED_S * 1e9)
        for folder, files in (await uploads(self._store, f"raw/{session_id}/")).items():
            if max(file.modified_ns for file in files) < before_ns:
                await self._store.delete_prefix(f"{folder}/")

    async def _remove(self, folder: str) -> None:
        try:
            await self._store.delete_prefix(folder)
        except PermilleError as error:
            _log.warning("what is left of an upload stays for now", folder=folder, error=error.message)


async def uploads(store: ObjectStore, prefix: str) -> dict[str, list[ObjectInfo]]:
    """What there is of uploads, finished or not, by folder."""
    found: dict[str, list[ObjectInfo]] = {}
    async for info in store.list(prefix):
        folder = info.key.rpartition("/")[0]
        if _FOLDER.fullmatch(folder):
            found.setdefault(folder, []).append(info)
    return found


class _Pieces:
    """The requests as files: `file` is the one whose pieces come next."""

    def __init__(
        self, first: decoder_pb2.UploadSessionRequest, requests: AsyncIterator[decoder_pb2.UploadSessionRequest]
    ) -> None:
        self._requests = requests
        self._next: decoder_pb2.UploadSessionRequest | None = first
        self.file = first.file

    async def of_file(self) -> AsyncIterator[bytes]:
        """The data up to where another file begins. Raises `InvalidArgument` when the manifest did not come."""
        request = self._next
        while request is not None:
            yield request.data
            request = await anext(self._requests, None)
            if request is not None and request.file:
                break
        self._next = request
        if request is None and self.file != _MANIFEST:
            raise _refused(f"the upload ends with {self.file!r}, {_MANIFEST} did not come", "file")
        self.file = request.file if request is not None else ""


class _Content:
    """A file on its way into the store."""

    def __init__(self, pieces: _Pieces, *, packed: bool) -> None:
        self._pieces = pieces
        self._packed = packed
        self.size = 0
        self.digest = hashlib.sha256()

    async def stream(self) -> AsyncIterator[bytes]:
        """What is stored; compressed, if it is to be."""
        compressor = zstandard.ZstdCompressor(_LEVEL).compressobj() if self._packed else None
        async for data in self._pieces.of_file():
            self.size += len(data)
            packed = await asyncio.to_thread(self._take, data, compressor)
            if packed:
                yield packed
        if compressor is not None:
            yield compressor.flush()

    def _take(self, data: bytes, compressor: zstandard.ZstdCompressionObj | None) -> bytes:
        self.digest.update(data)
        return compressor.compress(data) if compressor is not None else data


def _session(name: str) -> tuple[str, str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise _refused(f"{name!r} is no name of an imported session: nodes/imported/sessions/<id>", "session")
    return name, match[1]


def _response(name: str, text: bytes, manifest: Manifest, *, existed: bool) -> decoder_pb2.UploadSessionResponse:
    stored = sum(segment.stored_bytes for segment in manifest.segments)
    return decoder_pb2.UploadSessionResponse(
        session=name, existed=existed, recording=hashlib.sha256(text).hexdigest(), stored_bytes=stored
    )


def _listed(manifest: Manifest) -> bytes:
    """The record by which controllers list a stored session (docs/design/0007-import.md)."""
    record = {
        "node": manifest.node,
        "id": manifest.session_id,
        "backend": "imported",
        "request_id": "",
        "pids": manifest.target.pids,
        "purpose": manifest.purpose,
        "period_ms": manifest.period_ms,
        "budget_bytes": 0,
        "options": {},
        "state": "STORED",
        "target_name": manifest.target.name,
        "command_line": manifest.target.command_line,
        "create_ns": time.time_ns(),
        "start_ns": manifest.start_ns,
        "end_ns": manifest.end_ns,
        "stop_reason": manifest.stop_reason,
        "raw_bytes": sum(segment.size_bytes for segment in manifest.segments),
        "stored_bytes": sum(segment.stored_bytes for segment in manifest.segments),
        "segments": len(manifest.segments),
    }
    return json.dumps(record, separators=(",", ":")).encode()


def _refused(what: str, field: str) -> InvalidArgument:
    return InvalidArgument(
        what,
        reason="UPLOAD_REFUSED",
        help="upload with `permille import` of the same version as the decoder",
        metadata={"field": field},
    )
