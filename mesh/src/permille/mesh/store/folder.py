"""The object store in a folder.

`<root>/<key>` is the content, byte by byte, so that every other tool reads it. `<root>/.checksums/<key>` holds the
SHA-256 of it. A put writes into `<root>/.partial`, syncs, and renames. Because two renames are not one, the checksum
file holds the old and the new sum during the change: whenever the power goes, what is there matches one of them.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from permille.mesh.errors import FailedPrecondition, InvalidArgument, PermilleError, PermissionDenied, Unavailable
from permille.mesh.exhausted import exhausted
from permille.mesh.no_room import is_no_room
from permille.mesh.store.keys import valid_folder, valid_key, valid_prefix
from permille.mesh.store.object_store import ObjectInfo, StoreUsage
from permille.mesh.store.pieces import stream_of
from permille.mesh.store.store_errors import damaged, full, no_object

_CHUNK = 1 << 20


class FolderStore:
    """Objects as files below `root`, which is made when something is put.

    A root that had something and is gone or empty, as that of a disk that is not mounted any more, is no empty store:
    it is away.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._checksums = root / ".checksums"
        self._partial = root / ".partial"
        self._seen = False

    @property
    def url(self) -> str:
        """`file:///...`."""
        return self._root.as_uri()

    async def put_stream(self, key: str, data: AsyncIterable[bytes] | bytes) -> ObjectInfo:
        """See `ObjectStore`."""
        valid_key(key)
        if isinstance(data, bytes):
            # In one go, as in `get`.
            with self._errors(key):
                return await asyncio.to_thread(self._put_whole, key, data)
        with self._errors(key):
            partial = await asyncio.to_thread(self._new_partial)
        try:
            digest, size = hashlib.sha256(), 0
            async for piece in stream_of(data):
                with self._errors(key):
                    await asyncio.to_thread(_append, partial, piece)
                digest.update(piece)
                size += len(piece)
            with self._errors(key):
                return await asyncio.to_thread(self._publish, partial, key, size, digest.hexdigest())
        finally:
            await asyncio.to_thread(_discard, partial)

    async def open_read(self, key: str, *, sha256: str = "") -> AsyncIterator[bytes]:
        """See `ObjectStore`."""
        valid_key(key)
        with self._reading(key):
            file, allowed, size = await asyncio.to_thread(self._open, key)
        digest = hashlib.sha256()
        with file:
            while True:
                with self._errors(key):
                    piece = await asyncio.to_thread(file.read, _CHUNK)
                if not piece:
                    break
                digest.update(piece)
                yield piece
        if digest.hexdigest() not in ([sha256] if sha256 else allowed):
            raise _other(key, self.url, size)

    async def get(self, key: str, *, sha256: str = "") -> bytes:
        """See `ObjectStore`."""
        valid_key(key)
        # In one go: small objects are mostly the way from thread to thread.
        with self._reading(key):
            data, digest, allowed = await asyncio.to_thread(self._read, key)
        if digest not in ([sha256] if sha256 else allowed):
            raise _other(key, self.url, len(data))
        return data

    def read_plain(self, key: str) -> bytes | None:
        """See `ObjectStore`."""
        valid_key(key)
        with self._errors(key):
            self._require_root()
            try:
                return (self._root / key).read_bytes()
            except FileNotFoundError:
                return None

    def put_new(self, key: str, data: bytes) -> bool:
        """See `ObjectStore`."""
        target = self._root / valid_key(key)
        with self._errors(key):
            partial = self._new_partial()
            try:
                partial.write(data)
                partial.flush()
                os.fsync(partial.fileno())
                with suppress(FileExistsError):
                    target.hardlink_to(partial.name)
                    _sync_folder(target.parent)
                    return True
            finally:
                _discard(partial)
        return False

    async def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore`."""
        valid_key(key)
        with self._reading(key):
            return await asyncio.to_thread(self._head, key)

    async def exists(self, key: str) -> bool:
        """See `ObjectStore`."""
        valid_key(key)
        with self._errors(key):
            return await asyncio.to_thread(self._exists, key)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        valid_prefix(prefix)
        with self._errors(prefix):
            found = await asyncio.to_thread(lambda: list(self._walk(prefix)))
        for info in found:
            yield info

    async def delete(self, key: str) -> bool:
        """See `ObjectStore`."""
        valid_key(key)
        with self._errors(key):
            return await asyncio.to_thread(self._delete, key)

    async def delete_prefix(self, prefix: str) -> StoreUsage:
        """See `ObjectStore`."""
        valid_folder(prefix)
        with self._errors(prefix):
            return await asyncio.to_thread(self._delete_prefix, prefix)

    async def sweep(self, older_than_s: float) -> int:
        """See `ObjectStore`."""
        with self._errors(""):
            return await asyncio.to_thread(self._sweep, time.time() - older_than_s)

    def table_location(self, name: str) -> tuple[str, dict[str, str]]:
        """See `ObjectStore`."""
        return str(self._root / "tables" / valid_key(name)), {}

    def _put_whole(self, key: str, data: bytes) -> ObjectInfo:
        partial = self._new_partial()
        try:
            partial.write(data)
            return self._publish(partial, key, len(data), hashlib.sha256(data).hexdigest())
        finally:
            _discard(partial)

    def _new_partial(self) -> BinaryIO:
        self._require_root()
        self._partial.mkdir(parents=True, exist_ok=True)
        return (self._partial / secrets.token_hex(8)).open("xb")

    def _publish(self, partial: BinaryIO, key: str, size: int, sha256: str) -> ObjectInfo:
        partial.flush()
        os.fsync(partial.fileno())
        target, sums = self._root / key, self._checksums / key
        with self._lock():
            self._make_parent(target)
            self._make_parent(sums)
            before = self._sums(key) if target.is_file() else []
            self._write_sums(sums, [*before, sha256])
            Path(partial.name).replace(target)
            _sync_folder(target.parent)
            if before:
                self._write_sums(sums, [sha256])
        return ObjectInfo(key, size, sha256, target.stat().st_mtime_ns)

    def _write_sums(self, path: Path, sums: Sequence[str]) -> None:
        partial = self._partial / f"{secrets.token_hex(8)}.sum"
        try:
            with partial.open("xb") as file:
                file.write("".join(f"{value}\n" for value in dict.fromkeys(sums)).encode())
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def _sums(self, key: str) -> Sequence[str]:
        with suppress(FileNotFoundError):
            return (self._checksums / key).read_text().split()
        return []

    def _make_parent(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from None

    def _open(self, key: str) -> tuple[BinaryIO, Sequence[str], int]:
        self._require_root()
        for _ in range(100):
            before = self._sums(key)
            file = (self._root / key).open("rb")
            allowed = self._sums(key)
            # Between the two an object may have been replaced: then both old and new sums must be known.
            if before == allowed:
                break
            file.close()
        if not allowed:
            file.close()
            raise damaged(key, self.url, "its checksum is missing")
        return file, allowed, os.fstat(file.fileno()).st_size

    def _read(self, key: str) -> tuple[bytes, str, Sequence[str]]:
        file, allowed, _ = self._open(key)
        with file:
            data = file.read()
        return data, hashlib.sha256(data).hexdigest(), allowed

    def _head(self, key: str) -> ObjectInfo:
        self._require_root()
        status = (self._root / key).stat()
        if not (self._root / key).is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        sums = self._sums(key)
        if not sums:
            raise damaged(key, self.url, "its checksum is missing")
        if len(sums) > 1:
            content = (self._root / key).open("rb")
            with content:
                sums = [hashlib.file_digest(content, "sha256").hexdigest()]
        return ObjectInfo(key, status.st_size, sums[-1], status.st_mtime_ns)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        self._require_root()
        root, found = str(self._root), []
        for folder, folders, files in os.walk(self._root / prefix.rpartition("/")[0]):
            # A path for each of thousands would take longer than to list them.
            begin = f"{folder[len(root) :].strip('/')}/".lstrip("/")
            folders[:] = [name for name in folders if name[0] != "." and f"{begin}{name}/".startswith(prefix)]
            found += [f"{begin}{name}" for name in files if name[0] != "." and f"{begin}{name}".startswith(prefix)]
        for key in sorted(found):
            with suppress(FileNotFoundError):
                status = (self._root / key).stat()
                yield ObjectInfo(key, status.st_size, "", status.st_mtime_ns)

    def _exists(self, key: str) -> bool:
        self._require_root()
        return (self._root / key).is_file()

    def _require_root(self) -> None:
        # Made by the first put, and never removed: where a disk was mounted an empty folder stays.
        if self._checksums.is_dir():
            self._seen = True
        elif self._seen:
            raise Unavailable(
                f"the object store {self.url} is away: what was in the folder {self._root} is not there any more",
                reason="STORE_UNAVAILABLE",
                help="mount it again, or put the folder back to its place",
                metadata={"store": self.url},
                retry_after_s=1,
            )

    def _delete(self, key: str) -> bool:
        self._require_root()
        target = self._root / key
        if not target.is_file():
            return False
        with self._lock():
            existed = target.exists()
            target.unlink(missing_ok=True)
            (self._checksums / key).unlink(missing_ok=True)
            self._remove_empty(target.parent, self._root)
            self._remove_empty((self._checksums / key).parent, self._checksums)
        return existed

    def _delete_prefix(self, prefix: str) -> StoreUsage:
        freed = [info.size_bytes for info in list(self._walk(prefix)) if self._delete(info.key)]
        return StoreUsage(len(freed), sum(freed))

    def _remove_empty(self, folder: Path, top: Path) -> None:
        with suppress(OSError):
            while folder != top:
                folder.rmdir()
                folder = folder.parent

    def _sweep(self, before_s: float) -> int:
        self._require_root()
        removed = 0
        for path in self._partial.glob("*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before_s:
                    path.unlink()
                    removed += 1
        return removed

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._partial.mkdir(parents=True, exist_ok=True)
        with (self._root / ".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            self._require_root()
            raise no_object(key, self.url) from None
        except OSError as error:
            raise self._told(key, error) from error

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        with self._errors(key):
            try:
                yield
            except (IsADirectoryError, NotADirectoryError):
                if not self._root.is_dir():
                    raise
                # Whatever else has the name or that of its folder, there is no such object.
                raise no_object(key, self.url) from None

    def _told(self, key: str, error: OSError) -> PermilleError:
        values = {"key": key, "store": self.url}
        if lack := exhausted("whoever uses the object store", error):
            return lack
        if is_no_room(error):
            return full(key, self.url, error.strerror or "no space")
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            return PermissionDenied(
                f"the object store {self.url} does not let {key or 'it'} be touched: {error.strerror}",
                reason="STORE_DENIED",
                help="mount it writable again: mount -o remount,rw; dmesg says why where the kernel did it"
                if error.errno == errno.EROFS
                else f"give the user of this process (uid {os.getuid()}) the right to write below {self._root}",
                metadata=values,
            )
        if isinstance(error, (IsADirectoryError, NotADirectoryError)) and not self._root.is_dir():
            return FailedPrecondition(
                f"the object store's folder {self._root} is no folder",
                reason="STORE_NOT_A_FOLDER",
                help="choose another store with --store file:///absolute/folder",
                metadata=values,
            )
        if isinstance(error, (IsADirectoryError, NotADirectoryError)):
            return InvalidArgument(
                f"{key!r} cannot be an object: a folder of objects has its name, or an object the name of its folder",
                reason="BAD_OBJECT_KEY",
                help="choose a key that is not the beginning of another",
                metadata=values,
            )
        return Unavailable(
            f"the object store {self.url} cannot be used, {key}: {error.strerror or error}",
            reason="STORE_UNAVAILABLE",
            help=f"check the disk below {self._root}",
            metadata=values,
            retry_after_s=5,
        )


def _other(key: str, url: str, size: int) -> PermilleError:
    return damaged(key, url, f"its {size:,} bytes do not have the SHA-256 that they were stored with")


def _append(file: BinaryIO, piece: bytes) -> None:
    file.write(piece)


def _discard(partial: BinaryIO) -> None:
    with suppress(OSError):
        partial.close()
    with suppress(OSError):
        Path(partial.name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
