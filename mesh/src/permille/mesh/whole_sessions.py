"""Which files of the tables are a session's: those of one decode, as the session's row names them.

A decode commits to one table after the other, to `sessions` last. So that nobody sees half of it, or nothing meanwhile,
the file of that row names the decode's files in the other tables, in its Parquet footer. One commit, of `sessions`,
is then what makes a decode seen; what a table does not hold of it any more is in the store for as long as it is named.
That is also how a session is seen of which a table has lost its files, or not seen any more where the store has too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

# Of which session a file is; and of which decode, where `TableFile` named it.
_FILE = re.compile(r"/session_id=([^/]+)/(?:part-(.+)-[0-9a-f]{16}\.parquet$)?")
_KEY = "permille.files"
# Tables that all but a few sessions have rows in.
_USUAL = ("segments", "functions", "calls")
# By table the paths of files below the table's folder.
Named = Mapping[str, Sequence[str]]
# By the file of a session's row what it names.
Footers = dict[str, Named]


def session_of(file: str) -> str:
    """Of which session a file of a table is; "" of none."""
    match = _FILE.search(file)
    return match[1] if match else ""


def footer_of(files: Named) -> dict[str, str]:
    """For the file of a session's row: the names of the files of its decode in the other tables."""
    return {_KEY: json.dumps({table: names for table, names in files.items() if names})}


def named_files(
    sessions: ds.Dataset, wanted: Collection[str], known: Footers
) -> tuple[dict[str, Named | None], Footers]:
    """By session what its row names; None: nothing, as rows of earlier releases, or it cannot be read. Blocking.

    `known`: what was read before; it comes back with what was read now, without what the table has not any more.
    """
    files = _files(sessions)
    kept = {file: known[file] for file in files if file in known}
    rows: dict[str, list[str]] = {session_id: [] for session_id in wanted}
    for file in files:
        if (session_id := session_of(file)) in rows:
            rows[session_id].append(file)
            if file not in kept and (named := _named(sessions, file)) is not None:
                kept[file] = named
    return {session_id: kept.get(found[0]) if len(found) == 1 else None for session_id, found in rows.items()}, kept


@dataclass(frozen=True)
class Doubtful:
    """Sessions of which the tables may not have all rows of the decode that `sessions` has the row of.

    `partial`: they have something else. `lacking`: of these, the tables that have nothing and mostly would.
    """

    partial: set[str]
    lacking: dict[str, list[str]]


def doubtful_sessions(tables: Mapping[str, ds.Dataset], later: ds.Dataset) -> Doubtful:
    """`later`: `sessions` again, as of when the others were opened."""
    decodes = {table: _decodes(dataset) for table, dataset in tables.items()}
    whole = decodes["sessions"]
    partial = {
        session_id
        for found in decodes.values()
        for session_id, decode in found.items()
        if session_id not in whole or (decode and whole[session_id] and decode != whole[session_id])
    }
    # A table of which the next decode has no rows does not tell that it is there already.
    partial |= {session_of(file) for file in set(_files(tables["sessions"])) - set(_files(later))}
    lacking: dict[str, list[str]] = {}
    named = {session_id for session_id, decode in whole.items() if decode} - partial
    for table in _USUAL:
        for session_id in named - decodes[table].keys():
            lacking.setdefault(session_id, []).append(table)
    return Doubtful(partial, lacking)


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


def _named(sessions: ds.Dataset, file: str) -> Named | None:
    filesystem: Any = sessions.filesystem  # type: ignore[attr-defined]
    try:
        found = (pq.read_metadata(file, filesystem=filesystem).metadata or {}).get(_KEY.encode())
        folder = file.rpartition("/")[0]
        tables = json.loads(found) if found is not None else None
        return tables and {table: [f"{folder}/{_name(name)}" for name in names] for table, names in tables.items()}
    except (ValueError, TypeError, AttributeError, FileNotFoundError):
        # Damaged, or gone. A store that is away is another OSError.
        return None


def _name(name: str) -> str:
    if "/" in name:
        raise ValueError(f"{name} is in another folder")
    return name


def _decodes(dataset: ds.Dataset) -> dict[str, str]:
    """By session the decode that its files in the table are of; "" where their names do not tell."""
    return {match[1]: match[2] or "" for match in map(_FILE.search, _files(dataset)) if match}


def _files(dataset: ds.Dataset) -> list[str]:
    return getattr(dataset, "files", [])


def _partition(file: str) -> ds.Expression:
    day, session_id = (folder.partition("=")[2] for folder in file.split("/")[:2])
    return (ds.field("day") == date.fromisoformat(day)) & (ds.field("session_id") == session_id)
