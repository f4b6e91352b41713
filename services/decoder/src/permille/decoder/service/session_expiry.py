"""Deleting recordings that have outlived their retention: one of the decoders looks for them from time to time."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

import structlog
from permille.decoder.domain.manifest import checked_manifest, manifest_key
from permille.decoder.service.session_deletion import FINAL, NODES, SessionDeletion
from permille.mesh.errors import DataLoss, FailedPrecondition, NotFound
from permille.mesh.etcd import Etcd
from permille.mesh.operation_names import operation_of
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectInfo, ObjectStore

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Kept:
    """A session that is over, since when it is kept, how long (0: as what nothing else was said of), and for whom."""

    name: str
    since_ns: int
    retention_s: int
    request_id: str

    def expired(self, now_ns: int, default_s: int) -> bool:
        kept_s = self.retention_s or default_s
        return bool(kept_s) and self.since_ns + kept_s * 1_000_000_000 <= now_ns


class SessionExpiry:
    """`retention_s`: of sessions of which nothing else was said; 0: for ever. `requests`: coverage's operations."""

    def __init__(
        self,
        store: ObjectStore,
        etcd: Etcd,
        deletion: SessionDeletion,
        requests: OperationStore,
        *,
        retention_s: int,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._etcd = etcd
        self._deletion = deletion
        self._requests = requests
        self._retention_s = retention_s
        self._now_ns = now_ns
        # Of manifests, which never change, by session. None: one that cannot be read.
        self._unlisted: dict[str, Kept | None] = {}
        # Deletions that failed. What leads to a recording goes first.
        self._begun: set[str] = set()

    async def sweep(self) -> list[str]:
        """Deletes what is older than it may be, and names it. Raises what etcd and the store raise."""
        listed: set[str] = set()
        expired: list[Kept] = []
        now_ns = self._now_ns()
        async for name, kept in self._sessions(now_ns):
            listed.add(name.rpartition("/")[2])
            if kept is not None and kept.expired(now_ns, self._retention_s):
                expired.append(kept)
        # Of these etcd has lost the list.
        expired += [one async for one in self._others(now_ns, listed) if one.expired(now_ns, self._retention_s)]
        unwanted = [one.name for one in expired if await self._unwanted(one, now_ns)]
        return [name for name in dict.fromkeys([*self._begun, *unwanted]) if await self._deleted(name)]

    async def _sessions(self, now_ns: int) -> AsyncIterator[tuple[str, Kept | None]]:
        """All that etcd lists; None for one that is not over."""
        async for entry in self._etcd.newest(NODES):
            if "/sessions/" in entry.key:
                name = entry.key.removeprefix("/permille/v1/")
                record = json.loads(entry.value)
                # What was imported may have been recorded long before.
                since_ns = _since(now_ns, record.get("end_ns", 0), record.get("create_ns", 0))
                over = record.get("state") in FINAL and since_ns
                kept = Kept(name, since_ns, record.get("retention_s", 0), record.get("request_id", ""))
                yield name, kept if over else None

    async def _others(self, now_ns: int, listed: set[str]) -> AsyncIterator[Kept]:
        """Recordings in the store alone."""
        seen: dict[str, Kept | None] = {}
        async for info in self._store.list("raw/"):
            session_id = info.key.removeprefix("raw/").removesuffix("/manifest.json")
            if info.key != manifest_key(session_id) or session_id in listed:
                continue
            known = session_id in self._unlisted
            seen[session_id] = kept = self._unlisted[session_id] if known else await self._read(now_ns, info)
            if kept is not None:
                yield kept
        self._unlisted = seen

    async def _read(self, now_ns: int, info: ObjectInfo) -> Kept | None:
        try:
            manifest = await checked_manifest(await self._store.get(info.key), info.key)
        except NotFound:
            return None
        except DataLoss as error:
            _log.warning("of a recording it is not known how old it is", key=info.key, error=error.message)
            return None
        # By the folder's own name: no manifest has another session deleted.
        name = f"nodes/{manifest.node}/sessions/{info.key.split('/')[1]}"
        since_ns = _since(now_ns, manifest.end_ns, info.modified_ns)
        return Kept(name, since_ns, manifest.retention_s, manifest.request_id)

    async def _unwanted(self, kept: Kept, now_ns: int) -> bool:
        """Whoever had it recorded has had it, decoded or not, for as long as it is kept. Of a week ago nobody knows."""
        operation = operation_of(kept.request_id)
        try:
            request = await self._requests.get(operation) if operation else None
        except NotFound:
            request = None
        if request is None:
            return True
        since_ns = max(kept.since_ns, request.update_time.ToNanoseconds())
        return request.done and replace(kept, since_ns=since_ns).expired(now_ns, self._retention_s)

    async def _deleted(self, name: str) -> bool:
        self._begun.add(name)
        try:
            freed = await self._deletion.delete(name)
        except NotFound:
            freed = None
        except FailedPrecondition as error:
            _log.info("a recording that has outlived its retention is in use", session=name, why=error.message)
            freed = None
        self._begun.remove(name)
        if freed is None:
            return False
        _log.info("deleted: it has outlived its retention", session=name, size_bytes=freed.size_bytes)
        return True


def _since(now_ns: int, *stamps_ns: int) -> int:
    """The last of them. One of the future is by a clock that was wrong."""
    return max((stamp for stamp in stamps_ns if stamp <= now_ns), default=max(stamps_ns))
