"""The transaction log of a Delta table: one entry for each version.

Delta's protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md): version n of the table is the entry n, and
entries go once there is a checkpoint behind them.
"""

from __future__ import annotations

import json

from permille.mesh.store.object_store import ObjectStore


class LogEntries:
    """Blocking; raises what the store raises."""

    def __init__(self, store: ObjectStore, table: str) -> None:
        self._store = store
        self._folder = f"tables/{table}/_delta_log"

    def read(self, version: int) -> bytes | None:
        """The entry; None when it is not there."""
        return self._store.read_plain(self._key(version))

    def put(self, version: int, entry: bytes) -> bool:
        """False when another one came first: nothing was done."""
        return self._store.put_new(self._key(version), entry)

    def end_with(self, version: int, entry: bytes | None) -> bool:
        """Whether `entry`, once the newest one, is so still. False as well where that cannot be told."""
        if entry is None or self.read(version + 1) is not None:
            return False
        # Where the next one is not there it may have been; where this one is another the table was made anew.
        checkpoint = self.checkpoint()
        return checkpoint is not None and checkpoint <= version and self.read(version) == entry

    def checkpoint(self) -> int | None:
        """The last version that there is a checkpoint of, -1 without one; None where what says so is damaged."""
        try:
            return int(
                json.loads(self._store.read_plain(f"{self._folder}/_last_checkpoint") or b'{"version": -1}')["version"]
            )
        except (ValueError, KeyError, TypeError):
            return None

    def _key(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"
