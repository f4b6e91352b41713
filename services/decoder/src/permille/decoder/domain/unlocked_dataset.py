"""Datasets as DuckDB scans them: Arrow begins and ends a scan without Python's global lock."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds


class UnlockedDataset(ds.Dataset):
    """Has only what DuckDB asks of a dataset: its schema, and a scanner of columns and a filter.

    pyarrow's `Scanner.to_reader`, which DuckDB calls, holds the global lock while it waits for Arrow's scheduler. A
    thread in that scheduler that a file system of Python told an error waits for the global lock: both for ever, and
    all of the process with them. `Scanner.to_batches` lets go of the lock.
    """

    def __init__(self, dataset: ds.Dataset) -> None:
        # Not the one of the base, which lets nobody make a dataset: nothing of it is used.
        self._dataset = dataset

    @property
    def schema(self) -> pa.Schema:
        """Of the dataset."""
        return self._dataset.schema

    def scanner(self, *args: Any, **options: Any) -> Any:
        """The dataset's, but for its reader."""
        return _UnlockedScanner(self._dataset.scanner(*args, **options))


class _UnlockedScanner:
    def __init__(self, scanner: ds.Scanner) -> None:
        self._scanner = scanner

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._scanner.projected_schema, self._scanner.to_batches())


def register(connection: duckdb.DuckDBPyConnection, name: str, dataset: ds.Dataset) -> None:
    """From now on the connection's statements read the dataset by this name."""
    connection.register(name, UnlockedDataset(dataset))
