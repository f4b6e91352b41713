"""The object store in an S3 bucket.

Small objects are put whole, large ones as multipart uploads; every part travels with its MD5, so that the server
refuses a damaged one. The SHA-256 of the content is kept with the object: as metadata where it is known before the
first byte leaves, else in an object of its own, `.checksums/<key>/<etag>`. Because it is named after the ETag, it
appears before the object is complete, and an object never has the checksum of another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from permille.mesh.errors import Aborted, NotFound, PermilleError
from permille.mesh.own_threads import OwnThreads
from permille.mesh.store.keys import valid_folder, valid_key, valid_prefix
from permille.mesh.store.multipart import MultipartUpload
from permille.mesh.store.object_store import ObjectInfo, StoreUsage
from permille.mesh.store.pieces import parts_of
from permille.mesh.store.s3_credentials import CredentialsAwayError, CredentialsRefusedError, S3Credentials
from permille.mesh.store.s3_errors import S3Address, S3Error, told
from permille.mesh.store.store_errors import damaged

if TYPE_CHECKING:
    from permille.mesh.store.s3_client import S3Client, S3Listed, S3Object, S3Upload

_PART_BYTES = 8 << 20
_READ_BYTES = 1 << 20
_AT_ONCE = 32
# Of Delta's library, which else tries for three minutes where nothing is answered: queries have one.
_PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "retry_timeout": "30s"}
_SHA256 = "permille-sha256"
_CHECKSUMS = ".checksums/"
_Result = TypeVar("_Result")


class S3Store:
    """Objects below `prefix` of a bucket that exists. `part_bytes`: at least 5 MiB on most servers."""

    def __init__(
        self, bucket: str, prefix: str = "", *, endpoint: str = "", region: str = "", part_bytes: int = _PART_BYTES
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._endpoint = endpoint
        self._region = region
        self._part_bytes = part_bytes
        self._credentials = S3Credentials()
        self._threads = OwnThreads(_AT_ONCE, "s3")

    @cached_property
    def _client(self) -> S3Client:
        # With the first request: what waits on every node has none of it.
        from permille.mesh.store.s3_client import S3Client  # noqa: PLC0415
        from permille.mesh.store.s3_connection import S3Connection  # noqa: PLC0415

        return S3Client(S3Connection(self._bucket, self._endpoint, self._region or "us-east-1", self._credentials))

    @property
    def url(self) -> str:
        """`s3://bucket/prefix?endpoint=...`."""
        options = f"?endpoint={self._endpoint}" if self._endpoint else ""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/") + options

    async def put_stream(self, key: str, data: AsyncIterable[bytes] | bytes) -> ObjectInfo:
        """See `ObjectStore`."""
        valid_key(key)
        parts = parts_of(data, self._part_bytes)
        first = await anext(parts)
        second = await anext(parts, None)
        if second is None:
            return await self._put_whole(key, first)
        return await self._put_parts(key, _chained(first, second, parts))

    async def open_read(self, key: str, *, sha256: str = "") -> AsyncIterator[bytes]:
        """See `ObjectStore`."""
        valid_key(key)
        found, body = await self._call(key, lambda: self._client.get(self._prefix + key))
        digest, size = hashlib.sha256(), 0
        try:
            while piece := await self._call(key, lambda: body.read(_READ_BYTES)):
                digest.update(piece)
                size += len(piece)
                yield piece
        finally:
            body.close()
        # Not before: a server that answers few at a time would have to answer this while the object's own answer waits.
        if digest.hexdigest() != (sha256 or await self._sha256(key, found)):
            raise damaged(key, self.url, f"its {size:,} bytes do not have the SHA-256 that they were stored with")

    async def get(self, key: str, *, sha256: str = "") -> bytes:
        """See `ObjectStore`."""
        return b"".join([piece async for piece in self.open_read(key, sha256=sha256)])

    def read_plain(self, key: str) -> bytes | None:
        """See `ObjectStore`."""
        name = self._prefix + valid_key(key)
        try:
            return self._asked(key, lambda: self._read(name))
        except NotFound:
            return None

    def put_new(self, key: str, data: bytes) -> bool:
        """See `ObjectStore`."""
        name = self._prefix + valid_key(key)
        return self._asked(key, lambda: self._client.put_new(name, data))

    async def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore`."""
        valid_key(key)
        found = await self._head(key)
        return ObjectInfo(key, found.size_bytes, await self._sha256(key, found), _ns(found.modified))

    async def exists(self, key: str) -> bool:
        """See `ObjectStore`."""
        valid_key(key)
        try:
            await self._head(key)
        except PermilleError as error:
            if error.reason != "OBJECT_NOT_FOUND":
                raise
            return False
        return True

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        valid_prefix(prefix)
        async for entry in self._entries(prefix):
            key = entry.key.removeprefix(self._prefix)
            if not key.startswith("."):
                yield ObjectInfo(key, entry.size_bytes, "", _ns(entry.modified))

    async def delete(self, key: str) -> bool:
        """See `ObjectStore`."""
        existed = await self.exists(key)
        await self._delete([key, *[name async for name in self._names(f"{_CHECKSUMS}{key}/")]])
        return existed

    async def delete_prefix(self, prefix: str) -> StoreUsage:
        """See `ObjectStore`."""
        valid_folder(prefix)
        found = [info async for info in self.list(prefix)]
        await self._delete([info.key for info in found])
        await self._delete([name async for name in self._names(_CHECKSUMS + prefix)])
        await self._abort_uploads(prefix, datetime.max.replace(tzinfo=UTC))
        return StoreUsage(len(found), sum(info.size_bytes for info in found))

    async def sweep(self, older_than_s: float) -> int:
        """See `ObjectStore`."""
        return await self._abort_uploads("", datetime.now(UTC) - timedelta(seconds=older_than_s))

    def table_location(self, name: str) -> tuple[str, dict[str, str]]:
        """See `ObjectStore`."""
        options = {"conditional_put": "etag", "aws_region": self._region or "us-east-1"} | _PATIENCE
        # Without them Delta looks for its own, and tells what is wrong.
        with suppress(CredentialsRefusedError, CredentialsAwayError):
            credentials = self._credentials.current()
            secrets = {
                "aws_access_key_id": credentials.access_key,
                "aws_secret_access_key": credentials.secret_key,
                "aws_session_token": credentials.token,
            }
            options |= {name: value for name, value in secrets.items() if value}
        if self._endpoint:
            options["aws_endpoint"] = self._endpoint
            options["aws_allow_http"] = str(self._endpoint.startswith("http://")).lower()
        return f"s3://{self._bucket}/{self._prefix}tables/{valid_key(name)}", options

    async def _put_whole(self, key: str, content: bytes) -> ObjectInfo:
        sha256 = hashlib.sha256(content).hexdigest()
        await self._call(key, lambda: self._client.put(self._prefix + key, content, {_SHA256: sha256}))
        await self._forget_checksums(key, keep="")
        return await self.head(key)

    async def _put_parts(self, key: str, parts: AsyncIterator[bytes]) -> ObjectInfo:
        upload = await self._call(
            key, lambda: MultipartUpload.begin(self._client, self._prefix + key, self._part_bytes)
        )
        digest, lost = hashlib.sha256(), False
        async for part in parts:
            await asyncio.to_thread(digest.update, part)
            # The rest is read for its checksum also when another writer has completed this very upload.
            lost = lost or not await self._continued(key, _adding(upload, part))
        etag = upload.etag()
        await self._put_whole_checksum(key, etag, digest.hexdigest())
        if lost or not await self._continued(key, upload.complete):
            return await self._completed_by_another(key, digest.hexdigest())
        stored = await self._call(key, lambda: self._client.head(self._prefix + key))
        if stored.etag != etag:
            # A server that encrypts gives ETags of its own.
            await self._put_whole_checksum(key, stored.etag, digest.hexdigest())
        await self._forget_checksums(key, keep=stored.etag)
        return ObjectInfo(key, stored.size_bytes, digest.hexdigest(), _ns(stored.modified))

    async def _continued(self, key: str, step: Callable[[], None]) -> bool:
        """False when the upload is no more."""
        try:
            await self._call(key, step)
        except PermilleError as error:
            if error.reason != "UPLOAD_GONE":
                raise
            return False
        return True

    async def _completed_by_another(self, key: str, sha256: str) -> ObjectInfo:
        if await self.exists(key):
            info = await self.head(key)
            if info.sha256 == sha256:
                return info
        raise Aborted(
            f"another process stored or deleted {key} at the same time",
            reason="UPLOAD_GONE",
            help="store it again",
            metadata={"key": key, "store": self.url},
            retry_after_s=1,
        )

    async def _put_whole_checksum(self, key: str, etag: str, sha256: str) -> None:
        name = f"{self._prefix}{_CHECKSUMS}{key}/{etag}"
        await self._call(key, lambda: self._client.put(name, sha256.encode()))

    async def _forget_checksums(self, key: str, *, keep: str) -> None:
        kept = f"{_CHECKSUMS}{key}/{keep}"
        await self._delete([name async for name in self._names(f"{_CHECKSUMS}{key}/") if name != kept])

    async def _sha256(self, key: str, found: S3Object) -> str:
        known = found.metadata.get(_SHA256)
        if known:
            return known
        name = f"{self._prefix}{_CHECKSUMS}{key}/{found.etag}"
        try:
            body = await self._call(key, lambda: self._read(name))
        except PermilleError as error:
            if error.reason != "OBJECT_NOT_FOUND":
                raise
            raise damaged(key, self.url, "its checksum is missing") from None
        return body.decode()

    def _read(self, name: str) -> bytes:
        _, body = self._client.get(name)
        with closing(body):
            return body.read()

    async def _head(self, key: str) -> S3Object:
        def ask() -> S3Object:
            try:
                return self._client.head(self._prefix + key)
            except S3Error as error:
                if error.status == 404:
                    # The answer to HEAD has no body that says what is missing: the object, or its bucket?
                    self._client.head_bucket()
                raise

        return await self._call(key, ask)

    async def _entries(self, prefix: str) -> AsyncIterator[S3Listed]:
        pages = self._client.listed(self._prefix + prefix)
        while (page := await self._call(prefix, lambda: next(pages, None))) is not None:
            for entry in page:
                yield entry

    async def _names(self, prefix: str) -> AsyncIterator[str]:
        async for entry in self._entries(prefix):
            yield entry.key.removeprefix(self._prefix)

    async def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            await self._call(key, partial(self._client.delete, self._prefix + key))

    async def _abort_uploads(self, prefix: str, before: datetime) -> int:
        def abort() -> int:
            aborted = 0
            for upload in self._client.uploads(self._prefix + prefix):
                if upload.initiated < before:
                    aborted += self._abort(upload)
            return aborted

        return await self._call(prefix, abort)

    def _abort(self, upload: S3Upload) -> bool:
        try:
            self._client.abort_upload(upload.key, upload.upload_id)
        except S3Error as error:
            if error.code != "NoSuchUpload":
                raise
            return False
        return True

    async def _call(self, key: str, request: Callable[[], _Result]) -> _Result:
        return await self._threads.run(lambda: self._asked(key, request))

    def _asked(self, key: str, request: Callable[[], _Result]) -> _Result:
        from permille.mesh.store.s3_connection import FAILURES  # noqa: PLC0415 - as the client

        try:
            return request()
        except FAILURES as error:
            raise told(error, key, S3Address(self.url, self._bucket, self._endpoint)) from error


def _adding(upload: MultipartUpload, part: bytes) -> Callable[[], None]:
    return lambda: upload.add(part)


async def _chained(first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    yield second
    async for part in rest:
        yield part


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
