"""The errors that both back ends, or a store and the tables on it, raise in the same words."""

from __future__ import annotations

from permille.mesh.errors import DataLoss, FailedPrecondition, NotFound, ResourceExhausted


def no_object(key: str, url: str) -> NotFound:
    """Nothing is stored under the key."""
    return NotFound(
        f"the object store has no object {key}",
        reason="OBJECT_NOT_FOUND",
        help=f"it may have been deleted, or the store {url} is not the one it was written to",
        metadata={"key": key, "store": url},
    )


def no_bucket(bucket: str, url: str) -> FailedPrecondition:
    """There is no store at all."""
    return FailedPrecondition(
        f"the object store {url} has no bucket {bucket!r}",
        reason="STORE_BUCKET_MISSING",
        help=f"create it (aws s3 mb s3://{bucket}) or name another with --store",
        metadata={"bucket": bucket, "store": url},
    )


def damaged(key: str, url: str, how: str) -> DataLoss:
    """What is stored is not what was put."""
    return DataLoss(
        f"the object {key} is damaged: {how}",
        reason="OBJECT_DAMAGED",
        help=f"restore it from a backup of {url}, or record again",
        metadata={"key": key, "store": url},
    )


def full(key: str, url: str, detail: str) -> ResourceExhausted:
    """There is no room."""
    return ResourceExhausted(
        f"the object store {url} is full, {key} was not stored: {detail}",
        reason="STORE_FULL",
        help="free space there, delete sessions with `permille delete SESSION`, or choose another store with --store",
        metadata={"key": key, "store": url},
        retry_after_s=30,
    )
