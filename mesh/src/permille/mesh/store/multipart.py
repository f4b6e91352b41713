"""One multipart upload of S3, begun anew or continued."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from permille.mesh.store.s3_client import S3Client


class MultipartUpload:
    """Parts of one size, numbered from 1. Blocking; raises what `S3Client` raises."""

    def __init__(self, client: S3Client, key: str, upload_id: str, present: dict[int, tuple[str, int]]) -> None:
        self._client = client
        self._key = key
        self._upload_id = upload_id
        # ETag (the MD5 in hex) and size by part number, as an interrupted put left them.
        self._present = present
        self._parts: list[str] = []

    @classmethod
    def begin(cls, client: S3Client, key: str, part_bytes: int) -> MultipartUpload:
        """Goes on with the newest unfinished upload of the key where there is one. Others are left to `sweep`."""
        found = [upload for upload in client.uploads(key) if upload.key == key]
        if not found:
            return cls(client, key, client.create_upload(key), {})
        newest = max(found, key=lambda upload: upload.initiated).upload_id
        present = {
            part.number: (part.etag, part.size_bytes)
            for part in client.parts(key, newest)
            if part.size_bytes <= part_bytes
        }
        return cls(client, key, newest, present)

    def add(self, part: bytes) -> None:
        """The next part; it is sent unless the very same is there already."""
        number = len(self._parts) + 1
        digest = hashlib.md5(part, usedforsecurity=False)
        self._parts.append(digest.hexdigest())
        if self._present.get(number) != (digest.hexdigest(), len(part)):
            self._client.upload_part(self._key, self._upload_id, number, part, digest.digest())

    def etag(self) -> str:
        """The ETag that S3 gives the whole: the MD5 of the parts' MD5s, and their number."""
        joined = b"".join(bytes.fromhex(part) for part in self._parts)
        return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def complete(self) -> None:
        """Makes the parts added the object; parts beyond them, from an earlier try, are dropped by the server."""
        self._client.complete_upload(self._key, self._upload_id, self._parts)
