"""Removing from the store what nothing leads to any more."""

from __future__ import annotations

import time

import structlog
from permille.decoder.domain.manifest import manifest_key
from permille.decoder.service.session_upload import uploads
from permille.mesh.errors import DataLoss, InvalidArgument, NotFound
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables
from permille.mesh.whole_sessions import session_of

_log = structlog.get_logger(__name__)
# Nobody puts one object for so long.
_INTERRUPTED_S = 24 * 3600


class StoreTidying:
    """Files that another decode has replaced, what decodes left that ended while the store was away, halves of uploads.

    Whoever began to read a table before reads files that it does not hold any more: they go when two sweeps in
    succession have found them.
    """

    def __init__(self, store: ObjectStore, tables: Tables, operations: OperationStore) -> None:
        self._store = store
        self._tables = tables
        self._operations = operations
        self._found: set[str] = set()
        # Folders of uploads that were finished.
        self._finished: set[str] = set()

    async def sweep(self) -> int:
        """How many objects were removed. Raises what etcd and the store raise."""
        await self._store.sweep(_INTERRUPTED_S)
        # In this order: what is put meanwhile is of a decode that goes on, or in a table by then.
        files = {table: await self._files(table) for table in SCHEMAS}
        running, left = await self._decodes()
        unheld: set[str] = set()
        for table, keys in files.items():
            held = await self._tables.files(table) if keys else set()
            unheld |= {key for key in keys - held if not _is_of(key, running)}
        if unheld:
            unheld -= await self._tables.named_files(set(map(session_of, unheld)))
        left |= unheld | await self._halves()
        removed = left & self._found
        for key in sorted(removed):
            await self._store.delete(key)
        self._found = left - removed
        if removed:
            _log.info("removed from the store what nothing leads to", objects=len(removed))
        return len(removed)

    async def _files(self, table: str) -> set[str]:
        listed = self._store.list(f"tables/{table}/day=")
        return {info.key async for info in listed if info.key.endswith(".parquet")}

    async def _decodes(self) -> tuple[set[str], set[str]]:
        """The ids of decodes that go on, and the objects of those that are over."""
        running: set[str] = set()
        left: dict[str, set[str]] = {}
        async for info in self._store.list("decodes/"):
            left.setdefault(info.key.split("/")[1], set()).add(info.key)
        for identity in left:
            if not await self._is_over(identity):
                running.add(identity)
        return running, {key for identity, keys in left.items() if identity not in running for key in keys}

    async def _halves(self) -> set[str]:
        """What an upload put that ended with its decoder: for a day nothing came, and no manifest leads to it."""
        before_ns = time.time_ns() - _INTERRUPTED_S * 1_000_000_000
        folders = await uploads(self._store, "raw/")
        self._finished &= folders.keys()
        left: set[str] = set()
        for folder, infos in folders.items():
            if folder in self._finished or max(info.modified_ns for info in infos) >= before_ns:
                continue
            if await self._is_finished(folder):
                self._finished.add(folder)
            else:
                left |= {info.key for info in infos}
        return left

    async def _is_finished(self, folder: str) -> bool:
        try:
            manifest = await self._store.get(manifest_key(folder.split("/")[1]))
        except NotFound:
            return False
        except DataLoss:
            # It may lead there.
            return True
        return f"{folder}/".encode() in manifest

    async def _is_over(self, identity: str) -> bool:
        try:
            return (await self._operations.get(f"operations/{identity}")).done
        except NotFound:
            return True
        except InvalidArgument:
            # Whoever put that there, it was no decode.
            return False


def _is_of(key: str, running: set[str]) -> bool:
    name = key.rpartition("/")[2]
    return any(name.startswith(f"part-{identity}-") for identity in running)
