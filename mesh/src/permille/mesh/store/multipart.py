"""One multipart upload of S3, begun anew or continued."""

from __future__ import annotations

import base64
import hashlib
from typing import Any


class MultipartUpload:
    """Parts of one size, numbered from 1. Blocking; raises what boto3 raises."""

    def __init__(self, client: Any, bucket: str, key: str, upload_id: str, present: dict[int, tuple[str, int]]) -> None:
        self._client = client
        self._where = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
        # ETag (the MD5 in hex) and size by part number, as an interrupted put left them.
        self._present = present
        self._parts: list[str] = []
        self.continued_parts = 0

    @classmethod
    def begin(cls, client: Any, bucket: str, key: str, part_bytes: int) -> MultipartUpload:
        """Goes on with the newest unfinished upload of the key where there is one. Others are left to `sweep`."""
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=key)
        found = [upload for page in pages for upload in page.get("Uploads", []) if upload["Key"] == key]
        if not found:
            created = client.create_multipart_upload(Bucket=bucket, Key=key)
            return cls(client, bucket, key, created["UploadId"], {})
        newest = max(found, key=lambda upload: upload["Initiated"])
        listed = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=newest["UploadId"])
        present = {
            part["PartNumber"]: (part["ETag"].strip('"'), part["Size"])
            for page in listed
            for part in page.get("Parts", [])
            if part["Size"] <= part_bytes
        }
        return cls(client, bucket, key, newest["UploadId"], present)

    def add(self, part: bytes) -> None:
        """The next part; it is sent unless the very same is there already."""
        number = len(self._parts) + 1
        digest = hashlib.md5(part, usedforsecurity=False)
        self._parts.append(digest.hexdigest())
        if self._present.get(number) == (digest.hexdigest(), len(part)):
            self.continued_parts += 1
            return
        self._client.upload_part(
            **self._where, PartNumber=number, Body=part, ContentMD5=base64.b64encode(digest.digest()).decode()
        )

    def etag(self) -> str:
        """The ETag that S3 gives the whole: the MD5 of the parts' MD5s, and their number."""
        joined = b"".join(bytes.fromhex(part) for part in self._parts)
        return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(self._parts)}"

    def complete(self) -> None:
        """Makes the parts added the object; parts beyond them, from an earlier try, are dropped by the server."""
        parts = [{"ETag": f'"{etag}"', "PartNumber": number} for number, etag in enumerate(self._parts, 1)]
        self._client.complete_multipart_upload(**self._where, MultipartUpload={"Parts": parts})
