"""The rows of a table of many small files, each of which is read once."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.dataset as ds


class RowsInMemory:
    """Of one table whose files hold a row or few. Blocking, for any thread: one after the other."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._known: dict[str, pa.Table] = {}
        self._whole: pa.Table | None = None

    def dataset(self, table: ds.Dataset) -> ds.Dataset:
        """The same rows. Files that cannot be read stay files, so that whoever reads them is told."""
        if not isinstance(table, ds.FileSystemDataset):
            return table
        with self._turn:
            return self._kept(table)

    def _kept(self, table: ds.FileSystemDataset) -> ds.Dataset:
        away = False
        rows: dict[str, pa.Table] = {}
        unread: list[ds.Fragment] = []
        for fragment in table.get_fragments():
            known = self._known.get(fragment.path)
            try:
                if known is None and not away:
                    known = fragment.to_table(schema=table.schema)
            except (FileNotFoundError, pa.ArrowException):
                pass
            except OSError:
                # As long as that took each other one may take.
                away = True
            if known is None:
                unread.append(fragment)
            else:
                rows[fragment.path] = known
        if self._whole is None or rows.keys() != self._known.keys():
            self._whole = pa.concat_tables([table.schema.empty_table(), *rows.values()]).combine_chunks()
        self._known, whole = rows, self._whole
        if not unread:
            return ds.dataset(whole)
        return ds.dataset(
            [ds.dataset(whole), ds.FileSystemDataset(unread, table.schema, table.format, table.filesystem)]
        )
