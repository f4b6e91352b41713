"""Which files of the tables are a session's: those of one decode, as the session's row names them.

A decode commits to one table after the other, to `sessions` last. So that nobody sees half of it, or nothing meanwhile,
the file of that row names the decode's files in the other tables, in its Parquet footer. One commit, of `sessions`,
is then what makes a decode seen; what a table does not hold of it any more is in the store for as long as it is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

# Of which session a file is; and of which decode, where `TableFile` named it.
_FILE = re.compile(r"/session_id=([^/]+)/(?:part-(.+)-[0-9a-f]{16}\.parquet$)?")
_KEY = "permille.files"
# By table the paths of files below the table's folder.
Named = Mapping[str, Sequence[str]]


def session_of(file: str) -> str:
    """Of which session a file of a table is; "" of none."""
    match = _FILE.search(file)
    return match[1] if match else ""


def footer_of(files: Named) -> dict[str, str]:
    """For the file of a session's row: the names of the files of its decode in the other tables."""
    return {_KEY: json.dumps({table: names for table, names in files.items() if names})}


def named_files(sessions: ds.Dataset, session_id: str) -> dict[str, list[str]] | None:
    """What the session's row names; None where it names nothing, as those of earlier releases. Blocking."""
    files = [file for file in _files(sessions) if session_of(file) == session_id]
    if len(files) != 1:
        return None
    filesystem: Any = sessions.filesystem  # type: ignore[attr-defined]
    found = (pq.read_metadata(files[0], filesystem=filesystem).metadata or {}).get(_KEY.encode())
    if found is None:
        return None
    folder = files[0].rpartition("/")[0]
    return {table: [f"{folder}/{name}" for name in names] for table, names in json.loads(found).items()}


def partial_sessions(sessions: ds.Dataset, tables: Iterable[ds.Dataset], later: ds.Dataset) -> set[str]:
    """Sessions of which the tables have something else than all rows of the decode that `sessions` has the row of.

    `later`: `sessions` again, as of when the others were opened.
    """
    whole = _decodes(sessions)
    partial = {
        session_id
        for dataset in tables
        for session_id, decode in _decodes(dataset).items()
        if session_id not in whole or (decode and whole[session_id] and decode != whole[session_id])
    }
    # A table of which the next decode has no rows does not tell that it is there already.
    return partial | {session_of(file) for file in set(_files(sessions)) - set(_files(later))}


def with_files(table: str, dataset: ds.Dataset, sessions: Mapping[str, Named | None]) -> ds.Dataset:
    """The table with exactly the files named of these sessions; None: with nothing of the session."""
    if not isinstance(dataset, ds.FileSystemDataset):
        return dataset
    kept = [
        fragment
        for fragment in dataset.get_fragments()
        if (session_id := session_of(fragment.path)) not in sessions
        or (table == "sessions" and sessions[session_id] is not None)
    ]
    added = [
        dataset.format.make_fragment(path, dataset.filesystem, partition_expression=_partition(path))
        for named in sessions.values()
        for path in (named or {}).get(table, ())
    ]
    return ds.FileSystemDataset([*kept, *added], dataset.schema, dataset.format, dataset.filesystem)


def _decodes(dataset: ds.Dataset) -> dict[str, str]:
    """By session the decode that its files in the table are of; "" where their names do not tell."""
    return {match[1]: match[2] or "" for match in map(_FILE.search, _files(dataset)) if match}


def _files(dataset: ds.Dataset) -> list[str]:
    return getattr(dataset, "files", [])


def _partition(file: str) -> ds.Expression:
    day, session_id = (folder.partition("=")[2] for folder in file.split("/")[:2])
    return (ds.field("day") == date.fromisoformat(day)) & (ds.field("session_id") == session_id)
