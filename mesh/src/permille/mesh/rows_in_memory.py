"""The rows of a table of many small files, each of which is read once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds


class RowsInMemory:
    """Of one table whose files hold a row or few. Blocking, for one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, pa.Table] = {}
        self._whole: pa.Table | None = None

    def dataset(self, table: ds.Dataset) -> ds.Dataset:
        """The same rows. Files that cannot be read stay files, so that whoever reads them is told."""
        if not isinstance(table, ds.FileSystemDataset):
            return table
        rows: dict[str, pa.Table] = {}
        unread: list[ds.Fragment] = []
        for fragment in table.get_fragments():
            known = self._known.get(fragment.path)
            try:
                rows[fragment.path] = fragment.to_table(schema=table.schema) if known is None else known
            except (OSError, pa.ArrowException):
                unread.append(fragment)
        if self._whole is None or rows.keys() != self._known.keys():
            self._whole = pa.concat_tables([table.schema.empty_table(), *rows.values()]).combine_chunks()
        self._known, whole = rows, self._whole
        if not unread:
            return ds.dataset(whole)
        return ds.dataset(
            [ds.dataset(whole), ds.FileSystemDataset(unread, table.schema, table.format, table.filesystem)]
        )
