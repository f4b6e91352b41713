"""Tables as datasets, opened anew only when something was committed to them or the store's credentials are others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from permille.mesh.log_entries import LogEntries
from permille.mesh.store.object_store import ObjectStore
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem


@dataclass(frozen=True)
class _Opened:
    dataset: ds.Dataset
    # With the keys that it reads files with.
    location: tuple[str, dict[str, str]]
    version: int
    entry: bytes | None


class OpenedTables:
    """Blocking, for any thread; raises what `open_table` raises. To open a table takes as long as it has files."""

    def __init__(self, store: ObjectStore, open_table: Callable[[str], DeltaTable | None]) -> None:
        self._store = store
        self._open_table = open_table
        self._known: dict[str, _Opened] = {}

    def dataset(self, table: str, schema: pa.Schema) -> ds.Dataset | None:
        """The table as it is now; None when there is none."""
        entries, location = LogEntries(self._store, table), self._store.table_location(table)
        known = self._known.get(table)
        if known is not None and known.location == location and entries.end_with(known.version, known.entry):
            return known.dataset
        opened = self._open_table(table)
        if opened is None:
            self._known.pop(table, None)
            return None
        version = opened.version()
        dataset = opened.to_pyarrow_dataset(schema=schema, filesystem=_native(*location))
        known = _Opened(dataset, location, version, entries.read(version))
        self._known[table] = known
        return known.dataset


def _native(place: str, options: dict[str, str]) -> FileSystem | None:
    """Arrow's own for a folder, which has no options: all its errors name the file, and no read waits for Python."""
    return None if options else SubTreeFileSystem(place, LocalFileSystem())
