"""What S3 and the way to it can fail with, in permille's words."""

from __future__ import annotations

from dataclasses import dataclass

from permille.mesh.errors import Aborted, FailedPrecondition, PermilleError, PermissionDenied, Unavailable
from permille.mesh.store.s3_credentials import CredentialsRefusedError
from permille.mesh.store.store_errors import full, no_bucket, no_object

# EntityTooLarge: no part of ours is larger than a server allows, so it means a quota (Swift says it so).
_NO_ROOM = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "InsufficientCapacity", "EntityTooLarge"}
# PreconditionFailed: its ETag is another.
_REPLACED = 412
_DENIED = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "Forbidden",
    "AccountProblem",
}


class S3Error(Exception):
    """What the server answered instead; `code` may be empty. `region`: the bucket's, where the server tells it.

    `retry_after_s`: how long it asks to be left alone, 0 where it does not.
    """

    def __init__(
        self, operation: str, status: int, code: str, message: str, *, region: str = "", retry_after_s: int = 0
    ) -> None:
        super().__init__(f"{operation}: {code or status}: {message}")
        self.operation, self.status, self.code, self.message = operation, status, code, message
        self.region, self.retry_after_s = region, retry_after_s


@dataclass(frozen=True)
class S3Address:
    """Where the store is, for messages."""

    url: str
    bucket: str
    endpoint: str


def told(  # noqa: PLR0911 - one return an error
    error: Exception, key: str, address: S3Address
) -> PermilleError:
    """The error of our family for one of `s3_connection.FAILURES`."""
    if isinstance(error, CredentialsRefusedError):
        return _denied(key, address, str(error))
    if not isinstance(error, S3Error):
        return _unavailable(key, address, str(error) or repr(error))
    code, status, operation = error.code or str(error.status), error.status, error.operation
    message = error.message or code
    if code in _NO_ROOM or status in (507, 413):
        return full(key, address.url, message)
    if code == "RequestTimeTooSkewed":
        return FailedPrecondition(
            f"the object store {address.url} has another time than this machine: {message}",
            reason="STORE_CLOCK",
            help="set the clocks (timedatectl set-ntp true), here or where the store runs",
            metadata={"key": key, "store": address.url},
        )
    if code in _DENIED or status in (401, 403):
        return _denied(key, address, f"{code}: {message}")
    if code == "NoSuchBucket" or (status == 404 and operation in ("HeadBucket", "ListObjectsV2", "PutObject")):
        return no_bucket(address.bucket, address.url)
    if status == _REPLACED and operation == "GetObject":
        return Unavailable(
            f"{key} in the object store {address.url} was replaced while it was read",
            reason="OBJECT_REPLACED",
            help="read it again",
            metadata={"key": key, "store": address.url},
            retry_after_s=1,
        )
    if code == "NoSuchUpload":
        return Aborted(f"the upload of {key} is gone", reason="UPLOAD_GONE", metadata={"key": key})
    if code == "NoSuchKey" or status == 404:
        return no_object(key, address.url)
    return _unavailable(key, address, f"{operation}: {code}: {message}")


def _denied(key: str, address: S3Address, detail: str) -> PermissionDenied:
    return PermissionDenied(
        f"the object store {address.url} refuses these credentials: {detail}",
        reason="STORE_DENIED",
        help="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may read and write the bucket",
        metadata={"key": key, "store": address.url},
    )


def _unavailable(key: str, address: S3Address, detail: str) -> Unavailable:
    return Unavailable(
        f"the object store {address.url} cannot be reached or does not answer properly: {detail}",
        reason="STORE_UNAVAILABLE",
        help=f"check the endpoint {address.endpoint or 'of the region'} and the network; the setting is --store",
        metadata={"key": key, "store": address.url},
        retry_after_s=5,
    )
