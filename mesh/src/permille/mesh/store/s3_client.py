"""The operations of S3 that the store uses."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

import urllib3
from permille.mesh.store.s3_connection import S3Connection, S3Request, parsed, text_of
from permille.mesh.store.s3_content import S3Content
from permille.mesh.store.s3_errors import S3Error

# PreconditionFailed, ConditionalRequestConflict.
_ANOTHER_PUT = (412, 409)


@dataclass(frozen=True)
class S3Object:
    """What the headers tell of an object; `metadata` has what follows `x-amz-meta-`."""

    etag: str
    size_bytes: int
    modified: datetime
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class S3Listed:
    """What a listing tells of an object."""

    key: str
    size_bytes: int
    modified: datetime


@dataclass(frozen=True)
class S3Upload:
    """A multipart upload that is not complete."""

    key: str
    upload_id: str
    initiated: datetime


@dataclass(frozen=True)
class S3Part:
    """A part that a multipart upload has."""

    number: int
    etag: str
    size_bytes: int


class S3Client:
    """Of one bucket. Blocking, for any number of threads; raises `s3_connection.FAILURES`."""

    def __init__(self, connection: S3Connection) -> None:
        self._connection = connection

    def put(self, key: str, body: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """PutObject, with its MD5."""
        md5 = hashlib.md5(body, usedforsecurity=False).digest()
        headers = {f"x-amz-meta-{name}": value for name, value in (metadata or {}).items()}
        self._connection.request(S3Request("PutObject", "PUT", key, headers=headers | _with_md5(md5), body=body))

    def put_new(self, key: str, body: bytes) -> bool:
        """PutObject, with its MD5, if there is no such object; False when there is or another is just being put."""
        headers = _with_md5(hashlib.md5(body, usedforsecurity=False).digest()) | {"if-none-match": "*"}
        try:
            self._connection.request(S3Request("PutObject", "PUT", key, headers=headers, body=body))
        except S3Error as error:
            if error.status not in _ANOTHER_PUT:
                raise
            return False
        return True

    def get(self, key: str) -> tuple[S3Object, S3Content]:
        """GetObject; the content is to be closed."""
        response = self._connection.request(S3Request("GetObject", "GET", key, stream=True))
        found = _object(response)
        return found, S3Content(self._connection, key, found.etag, response)

    def head(self, key: str) -> S3Object:
        """HeadObject. The answer has no body that says what is missing: see `head_bucket`."""
        return _object(self._connection.request(S3Request("HeadObject", "HEAD", key)))

    def head_bucket(self) -> None:
        """HeadBucket."""
        self._connection.request(S3Request("HeadBucket", "HEAD"))

    def delete(self, key: str) -> None:
        """DeleteObject, whether it is there or not."""
        self._connection.request(S3Request("DeleteObject", "DELETE", key))

    def listed(self, prefix: str) -> Iterator[list[S3Listed]]:
        """ListObjectsV2: all keys that begin so, in order, a page at a time."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        while True:
            page = self._answer(S3Request("ListObjectsV2", "GET", query=query), "ListBucketResult")
            quoted = text_of(page, "EncodingType") == "url"
            yield [
                S3Listed(
                    unquote_plus(text_of(entry, "Key")) if quoted else text_of(entry, "Key"),
                    int(text_of(entry, "Size")),
                    _moment(entry, "LastModified"),
                )
                for entry in page.iterfind("{*}Contents")
            ]
            if text_of(page, "IsTruncated") != "true":
                return
            query["continuation-token"] = text_of(page, "NextContinuationToken")

    def create_upload(self, key: str) -> str:
        """CreateMultipartUpload: its id."""
        request = S3Request("CreateMultipartUpload", "POST", key, query={"uploads": ""})
        return text_of(self._answer(request, "InitiateMultipartUploadResult"), "UploadId")

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes, md5: bytes) -> None:
        """UploadPart."""
        query = {"partNumber": str(number), "uploadId": upload_id}
        self._connection.request(S3Request("UploadPart", "PUT", key, query=query, headers=_with_md5(md5), body=body))

    def complete_upload(self, key: str, upload_id: str, etags: Sequence[str]) -> None:
        """CompleteMultipartUpload, of the parts from number 1 on."""
        root = ET.Element("CompleteMultipartUpload", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
        for number, etag in enumerate(etags, 1):
            part = ET.SubElement(root, "Part")
            ET.SubElement(part, "PartNumber").text = str(number)
            ET.SubElement(part, "ETag").text = f'"{etag}"'
        self._connection.request(
            S3Request("CompleteMultipartUpload", "POST", key, query={"uploadId": upload_id}, body=ET.tostring(root))
        )

    def abort_upload(self, key: str, upload_id: str) -> None:
        """AbortMultipartUpload."""
        self._connection.request(S3Request("AbortMultipartUpload", "DELETE", key, query={"uploadId": upload_id}))

    def uploads(self, prefix: str) -> Iterator[S3Upload]:
        """ListMultipartUploads: of all keys that begin so."""
        query = {"uploads": "", "prefix": prefix}
        while True:
            page = self._answer(S3Request("ListMultipartUploads", "GET", query=query), "ListMultipartUploadsResult")
            for entry in page.iterfind("{*}Upload"):
                yield S3Upload(text_of(entry, "Key"), text_of(entry, "UploadId"), _moment(entry, "Initiated"))
            if text_of(page, "IsTruncated") != "true":
                return
            query |= {
                "key-marker": text_of(page, "NextKeyMarker"),
                "upload-id-marker": text_of(page, "NextUploadIdMarker"),
            }

    def parts(self, key: str, upload_id: str) -> Iterator[S3Part]:
        """ListParts."""
        query = {"uploadId": upload_id}
        while True:
            page = self._answer(S3Request("ListParts", "GET", key, query=query), "ListPartsResult")
            for entry in page.iterfind("{*}Part"):
                yield S3Part(int(text_of(entry, "PartNumber")), _etag(entry), int(text_of(entry, "Size")))
            if text_of(page, "IsTruncated") != "true":
                return
            query["part-number-marker"] = text_of(page, "NextPartNumberMarker")

    def _answer(self, request: S3Request, root: str) -> ET.Element:
        return parsed(self._connection.request(request).data, root=root)


def _etag(element: ET.Element) -> str:
    return text_of(element, "ETag").strip('"')


def _moment(element: ET.Element, name: str) -> datetime:
    return datetime.fromisoformat(text_of(element, name))


def _object(response: urllib3.BaseHTTPResponse) -> S3Object:
    headers, start = response.headers, "x-amz-meta-"
    return S3Object(
        headers.get("etag", "").strip('"'),
        int(headers["content-length"]),
        parsedate_to_datetime(headers["last-modified"]),
        {name.lower().removeprefix(start): value for name, value in headers.items() if name.lower().startswith(start)},
    )


def _with_md5(digest: bytes) -> dict[str, str]:
    return {"content-md5": base64.b64encode(digest).decode()}
