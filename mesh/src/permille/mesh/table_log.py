"""What a Delta table holds of each session, as its transaction log tells, and commits to it.

As far as version 2 of Delta's writers goes: an entry is put if there is none, so of all who try one is first.
delta-rs opens a table and shortens its log; it takes ten times as long as this to read the log on and commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from permille.mesh.errors import FailedPrecondition
from permille.mesh.log_entries import LogEntries
from permille.mesh.store.object_store import ObjectStore

_WRITERS = 2
# An entry takes as long to read as so many files of a checkpoint.
_FILES_AN_ENTRY = 100
# Entries with these change what the table is.
_OTHER_TABLE = {"metaData", "protocol"}


class TableLog:
    """Of one table, as of one version. Blocking; raises what the store raises.

    `opened`: as delta-rs has just read it. Raises `FailedPrecondition` for a table that wants other writers.
    """

    def __init__(self, store: ObjectStore, table: str, opened: DeltaTable) -> None:
        self._entries = LogEntries(store, table)
        wanted = opened.protocol().min_writer_version
        if wanted > _WRITERS:
            raise FailedPrecondition(
                f"the table {table} is for writers of Delta's version {wanted}: others than permille changed it",
                reason="TABLE_PROTOCOL",
                help=f"move tables/{table} of the store away and decode the sessions again",
                metadata={"table": table, "store": store.url},
            )
        self._version = opened.version()
        self._newest = self._entries.read(self._version)
        # By session the paths of its files, and the session of each.
        self._held: dict[str, tuple[str, ...]] = {}
        self._sessions: dict[str, str] = {}
        adds: Any = pa.table(opened.get_add_actions(flatten=True))
        for path, session_id in zip(adds["path"].to_pylist(), adds["partition.session_id"].to_pylist(), strict=True):
            self._add(session_id, path)

    @property
    def version(self) -> int:
        """Of the table."""
        return self._version

    def is_long(self, commits: int) -> bool:
        """Whether it is time for a checkpoint, which lists all files: after `commits`, of many files after more.

        To read what came behind the last one takes up to as long then as to read that.
        """
        if (self._version + 1) % commits:
            return False
        checkpoint = self._entries.checkpoint()
        return checkpoint is None or not 0 <= self._version - checkpoint < len(self._sessions) // _FILES_AN_ENTRY

    def read_on(self) -> bool:
        """Reads what was committed since. False where only delta-rs can tell what the table is now: open it anew."""
        while (entry := self._entries.read(self._version + 1)) is not None:
            if not self._take(entry):
                return False
        return self._entries.end_with(self._version, self._newest)

    def replace(self, session_id: str, adds: Sequence[Mapping[str, Any]], decode_id: str) -> bool:
        """One commit that puts files in the place of all that the table has of the session; none if they are just that.

        `adds`: Delta's actions. False when another one came first: nothing was done.
        """
        held, wanted = self._held.get(session_id, ()), {add["path"] for add in adds}
        now_ms = time.time_ns() // 1_000_000
        removed = [
            {"path": path, "deletionTimestamp": now_ms, "dataChange": True} for path in held if path not in wanted
        ]
        actions = [{"remove": remove} for remove in removed] + [{"add": add} for add in adds if add["path"] not in held]
        if not actions:
            return True
        about = {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Overwrite", "predicate": f"session_id = '{session_id}'"},
            # It rests on what the table held.
            "isBlindAppend": False,
            "engineInfo": "permille",
            "permille.decode": decode_id,
        }
        entry = "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": about}, *actions)).encode()
        return self._entries.put(self._version + 1, entry) and self._take(entry)

    def _take(self, entry: bytes) -> bool:
        """The next version. False for what is not understood."""
        try:
            for action in map(json.loads, entry.splitlines()):
                if not _OTHER_TABLE.isdisjoint(action):
                    return False
                if add := action.get("add"):
                    self._add(add["partitionValues"]["session_id"], add["path"])
                elif remove := action.get("remove"):
                    self._remove(remove["path"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        self._version, self._newest = self._version + 1, entry
        return True

    def _add(self, session_id: str, path: str) -> None:
        self._held[session_id] = (*self._held.get(session_id, ()), path)
        self._sessions[path] = session_id

    def _remove(self, path: str) -> None:
        session_id = self._sessions.pop(path, None)
        if session_id is not None:
            left = tuple(other for other in self._held.pop(session_id) if other != path)
            if left:
                self._held[session_id] = left
