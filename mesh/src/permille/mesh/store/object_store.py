"""What every back end of the object store does."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ObjectInfo:
    """One object: its size, the SHA-256 of its content in hex ("" in a listing), when it was stored (unix ns)."""

    key: str
    size_bytes: int
    sha256: str
    modified_ns: int


@dataclass(frozen=True)
class StoreUsage:
    """How many objects and how many bytes."""

    objects: int
    size_bytes: int


class ObjectStore(Protocol):
    """Whole objects by key; readers see an old or a new object, never a part of one.

    Every method raises `InvalidArgument` for a bad key (see `keys.valid_key`), `Unavailable` when the store cannot be
    reached, `PermissionDenied` for wrong credentials or rights, `FailedPrecondition` for a missing bucket, and those
    that write `ResourceExhausted` (STORE_FULL) when there is no room.
    """

    @property
    def url(self) -> str:
        """Where this store is, without secrets."""

    async def put_stream(self, key: str, data: AsyncIterable[bytes] | bytes) -> ObjectInfo:
        """Stores an object, replacing one that is there.

        What the source raises is raised, and the object stays as it was. A large object that was interrupted goes on
        where it was: the parts already there are not sent again when their checksums match.
        """

    def open_read(self, key: str, *, sha256: str = "") -> AsyncIterator[bytes]:
        """The content in pieces. Raises `NotFound`; `DataLoss` naming the key, at the end, when it is damaged.

        `sha256`: of the content, of a reader who knows it; else it must have that which it was stored with.
        """

    async def get(self, key: str, *, sha256: str = "") -> bytes:
        """The whole content. Raises as `open_read`."""

    def read_plain(self, key: str) -> bytes | None:
        """Blocking: the content of a small object that others put, without a checksum; None when there is none."""

    def put_new(self, key: str, data: bytes) -> bool:
        """Blocking: stores a small object, without a checksum, unless there is one or another is being put: False."""

    async def head(self, key: str) -> ObjectInfo:
        """Raises `NotFound`, and `DataLoss` when the checksum of the object is gone."""

    async def exists(self, key: str) -> bool:
        """Whether an object is there."""

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """All objects whose key begins so, in the order of their keys."""

    async def delete(self, key: str) -> bool:
        """False when there was none."""

    async def delete_prefix(self, prefix: str) -> StoreUsage:
        """Deletes every object whose key begins so, and what is half stored there; what was freed.

        The prefix ends with `/`, so that `raw/1/` does not take `raw/10`.
        """

    async def sweep(self, older_than_s: float) -> int:
        """Removes what interrupted puts left behind longer ago than that; how many."""

    def table_location(self, name: str) -> tuple[str, dict[str, str]]:
        """Where deltalake finds the table `tables/<name>`: its URI and the storage options."""
