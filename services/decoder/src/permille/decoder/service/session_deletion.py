"""Deleting a session for good: its recording, its rows, its record in etcd."""

from __future__ import annotations

import json

from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.manifest import (
    checked_manifest,
    manifest_key,
    other_name,
    parse_session_name,
    require_name,
)
from permille.mesh.errors import DataLoss, FailedPrecondition, NotFound
from permille.mesh.etcd import Etcd
from permille.mesh.operations import OperationKeys, OperationStore
from permille.mesh.store import ObjectStore, StoreUsage
from permille.mesh.tables import Tables

FINAL = ("STORED", "FAILED")
NODES = "/permille/v1/nodes/"


class SessionDeletion:
    """Interrupted, it is ended by asking again."""

    def __init__(self, store: ObjectStore, tables: Tables, etcd: Etcd, operations: OperationStore) -> None:
        self._store = store
        self._tables = tables
        self._etcd = etcd
        self._operations = operations

    async def delete(self, name: str) -> StoreUsage:
        """What was freed. Raises `NotFound`, `FailedPrecondition` while it is recorded, stored or decoded."""
        _, session_id = parse_session_name(name)
        record = await self._etcd.get(f"/permille/v1/{name}")
        if record is not None and json.loads(record.value).get("state") not in FINAL:
            raise _busy(
                name, "being recorded", "stop it with Ctrl-C in `permille trace`, or wait for its period to end"
            )
        if record is None:
            await self._require_name(name, session_id)
        await self._require_no_decode(name)
        # Without its manifest nobody finds it any more, whatever happens from here on.
        manifest = await self._delete(manifest_key(session_id))
        rows = await self._tables.delete_session(session_id)
        raw = await self._store.delete_prefix(f"raw/{session_id}/")
        if record is not None:
            await self._etcd.delete(f"/permille/v1/{name}")
        freed = [manifest, rows, raw]
        if record is None and not any(usage.objects for usage in freed):
            raise NotFound(
                f"there is no session {name}",
                reason="SESSION_NOT_FOUND",
                help="`permille sessions` lists those there are",
                metadata={"session": name},
            )
        return StoreUsage(sum(usage.objects for usage in freed), sum(usage.size_bytes for usage in freed))

    async def _delete(self, key: str) -> StoreUsage:
        try:
            size_bytes = (await self._store.head(key)).size_bytes
        except (NotFound, DataLoss):
            size_bytes = 0
        return StoreUsage(int(await self._store.delete(key)), size_bytes)

    async def _require_name(self, name: str, session_id: str) -> None:
        """By another node's name it would be deleted whatever goes on with it. Raises `NotFound`."""
        async for entry in self._etcd.newest(NODES):
            if entry.key.endswith(f"/sessions/{session_id}"):
                raise other_name(name, entry.key.removeprefix("/permille/v1/"))
        key = manifest_key(session_id)
        try:
            manifest = await checked_manifest(await self._store.get(key), key)
        except (NotFound, DataLoss):
            return
        # A copy of another one's folder goes by any name.
        if manifest.session_id == session_id:
            require_name(name, manifest)

    async def _require_no_decode(self, name: str) -> None:
        pending = await self._etcd.prefix(OperationKeys("decoder").pending)
        for entry in pending:
            identity = entry.key.rpartition("/")[2]
            operation = await self._operations.get(f"operations/{identity}")
            request = decoder_pb2.DecodeRequest()
            if not operation.done and operation.request.Unpack(request) and request.session == name:
                raise _busy(
                    name,
                    f"being decoded by {operation.name}",
                    "wait for that to end, or press Ctrl-C in the command that waits for it",
                )


def _busy(name: str, what: str, way_out: str) -> FailedPrecondition:
    return FailedPrecondition(f"{name} is {what}", reason="SESSION_BUSY", help=way_out, metadata={"session": name})
