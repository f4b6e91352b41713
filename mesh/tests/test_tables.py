"""Delta tables: whole commits, nothing lost among writers, nothing doubled, really deleted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from permille.mesh.errors import Code, PermilleError, Unavailable
from permille.mesh.store import open_store, s3
from permille.mesh.store.folder import FolderStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import TableFile, Tables

DAY = date(2026, 11, 21)
# A writer process: for each session of its own, rows in two tables, the second time with other numbers.
WRITER = """
import asyncio, sys
from datetime import date
import pyarrow as pa
from permille.mesh.store import open_store
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

def losses(session_id, count, first):
    common = {"session_id": session_id, "segment": 0, "size_bytes": 1, "reason": "r", "address": 0, "knob": ""}
    rows = [common | {"stream_offset": first + i, "start_ns": i, "end_ns": i, "day": date(2026, 11, 21)}
            for i in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["losses"])

async def run(url, writer, sessions):
    tables = Tables(open_store(url))
    for number in range(sessions):
        session_id = f"w{writer}-{number}"
        await tables.replace_session("losses", session_id, [losses(session_id, 7, 0)])
        await tables.replace_session("losses", session_id, [losses(session_id, 5, 100)])

asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
# A writer process that puts files and commits them for one session, which all writers share, and one of its own.
FILE_WRITER = """
import asyncio, sys
from datetime import date
import pyarrow as pa
import pyarrow.parquet as pq
from permille.mesh.store import open_store
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import TableFile, Tables

DAY = date(2026, 11, 21)

async def run(url, writer, times):
    store = open_store(url)
    tables = Tables(store)
    for number in range(times):
        for session_id in ("shared", f"w{writer}"):
            names = [field.name for field in SCHEMAS["losses"] if field.name not in ("day", "session_id")]
            schema = pa.schema([SCHEMAS["losses"].field(name) for name in names])
            row = {"segment": 0, "size_bytes": 1, "reason": "r", "address": 0, "knob": "", "end_ns": 7}
            rows = [row | {"stream_offset": writer, "start_ns": i} for i in range(5)]
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
            data = sink.getvalue().to_pybytes()
            name = f"part-{writer}-{number}.parquet"
            await store.put_stream(TableFile.key("losses", DAY, session_id, name), data)
            file = TableFile(name, len(data), 5, {"start_ns": (0, 4), "end_ns": (7, 7)})
            await tables.replace_session_files("losses", session_id, DAY, [file])

asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return (tmp_path / "store").as_uri()
    return str(request.getfixturevalue("conditional_s3_url"))


@pytest.fixture
def tables(url: str) -> Tables:
    return Tables(open_store(url))


def losses(session_id: str, offsets: Sequence[int], reason: str = "secret-reason") -> pa.RecordBatch:
    rows = [
        {
            "session_id": session_id,
            "segment": 0,
            "stream_offset": offset,
            "size_bytes": 1,
            "start_ns": offset,
            "end_ns": offset,
            "reason": reason,
            "address": -1,
            "knob": "",
            "day": DAY,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["losses"])


async def offsets(tables: Tables, session_id: str) -> list[int]:
    dataset = await tables.session("losses", session_id)
    return sorted(row["stream_offset"] for row in dataset.to_table(columns=["stream_offset"]).to_pylist())


async def test_a_table_never_written_is_empty(tables: Tables) -> None:
    for name, schema in SCHEMAS.items():
        dataset = await tables.dataset(name)
        assert dataset.schema == schema
        assert dataset.count_rows() == 0


async def test_rows_of_a_session_are_replaced_as_a_whole(tables: Tables) -> None:
    await tables.replace_session("losses", "s1", [losses("s1", [1, 2]), losses("s1", [3])])
    await tables.replace_session("losses", "s2", [losses("s2", [9])])
    assert await offsets(tables, "s1") == [1, 2, 3]
    await tables.replace_session("losses", "s1", [losses("s1", [4])])
    assert await offsets(tables, "s1") == [4]
    assert await offsets(tables, "s2") == [9]
    await tables.replace_session("losses", "s1", [])
    assert await offsets(tables, "s1") == []
    assert await offsets(tables, "s2") == [9]


async def test_a_source_that_fails_changes_nothing(tables: Tables) -> None:
    await tables.replace_session("losses", "s1", [losses("s1", [1])])

    def broken() -> object:
        yield losses("s1", [2])
        raise OSError("the disk with the spilled rows is gone")

    with pytest.raises(PermilleError):
        await tables.replace_session("losses", "s1", broken())  # type: ignore[arg-type]
    assert await offsets(tables, "s1") == [1]


async def test_every_type_of_every_table_survives(tables: Tables) -> None:
    for name, schema in SCHEMAS.items():
        row = {field.name: DAY if field.name == "day" else sample(field.type) for field in schema}
        row["session_id"] = "s1"
        await tables.replace_session(name, "s1", [pa.RecordBatch.from_pylist([row], schema=schema)])
        dataset = await tables.session(name, "s1")
        assert dataset.schema == schema
        assert dataset.to_table().to_pylist() == [row]


async def test_a_table_of_an_earlier_release_gets_the_columns_it_lacks(tables: Tables, url: str) -> None:
    now, lacking = SCHEMAS["functions"], ("blocks", "category", "line")
    before = pa.schema([column for column in now if column.name not in lacking])
    row = {field.name: DAY if field.name == "day" else sample(field.type) for field in now}
    uri, options = open_store(url).table_location("functions")
    Path(uri.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
    DeltaTable.create(uri, before, partition_by=["day", "session_id"], storage_options=options)
    old = {name: row[name] for name in before.names} | {"session_id": "old"}
    write_deltalake(uri, pa.Table.from_pylist([old], schema=before), mode="append", storage_options=options)
    old |= dict.fromkeys(lacking)
    assert (await tables.dataset("functions")).to_table().to_pylist() == [old]

    for session_id in ("s1", "s2"):
        new = row | {"session_id": session_id}
        await tables.replace_session("functions", session_id, [pa.RecordBatch.from_pylist([new], schema=now)])
    found = (await tables.dataset("functions")).to_table().sort_by("session_id").to_pylist()
    assert found == [old, row | {"session_id": "s1"}, row | {"session_id": "s2"}]


async def test_concurrent_writers_lose_and_double_nothing(tables: Tables, url: str) -> None:
    # Each commit of one waits for all others: on S3, where it takes a second, fewer meet as surely.
    count, sessions = (8, 4) if url.startswith("file:") else (4, 2)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, url, str(n), str(sessions)]) for n in range(count)]
    assert [writer.wait(240) for writer in writers] == [0] * count
    found = (await tables.dataset("losses")).to_table(columns=["session_id", "stream_offset"]).to_pylist()
    wanted = [
        (f"w{writer}-{number}", 100 + i) for writer in range(count) for number in range(sessions) for i in range(5)
    ]
    assert sorted((row["session_id"], row["stream_offset"]) for row in found) == sorted(wanted)


async def test_files_that_are_committed_at_once_replace_each_other(tables: Tables, url: str) -> None:
    await tables.replace_session("losses", "shared", [losses("shared", [1, 2, 3])])
    count, times = (4, 4) if url.startswith("file:") else (3, 2)
    writers = [subprocess.Popen([sys.executable, "-c", FILE_WRITER, url, str(n), str(times)]) for n in range(count)]
    assert [writer.wait(240) for writer in writers] == [0] * count
    for number in range(count):
        assert await offsets(tables, f"w{number}") == [number] * 5
    # Whoever was last: its rows alone.
    shared = await offsets(tables, "shared")
    assert len(shared) == 5
    assert len(set(shared)) == 1
    assert (await tables.dataset("losses")).count_rows() == 5 * (count + 1)
    found = (await tables.session("losses", "shared")).to_table().to_pylist()
    assert [(row["day"], row["session_id"], row["end_ns"]) for row in found] == [(DAY, "shared", 7)] * 5
    await tables.replace_session("losses", "shared", [losses("shared", [9])])
    assert await offsets(tables, "shared") == [9]
    await tables.replace_session_files("losses", "shared", DAY, [])
    assert await offsets(tables, "shared") == []


async def test_a_deleted_session_is_gone_from_the_store_too(tables: Tables, url: str) -> None:
    store = open_store(url)
    for session_id in ("s1", "s10"):
        await tables.replace_session("losses", session_id, [losses(session_id, [1], reason=f"secret-{session_id}")])
        await tables.replace_session("losses", session_id, [losses(session_id, [2], reason=f"secret-{session_id}")])
    held = {info.key: info.size_bytes async for info in store.list("tables/") if "session_id=s1/" in info.key}
    assert len(held) == 2, "the replaced file is there until the session is deleted"
    freed = await tables.delete_session("s1")
    assert (freed.objects, freed.size_bytes) == (2, sum(held.values()))
    assert await offsets(tables, "s1") == []
    assert await offsets(tables, "s10") == [2]
    assert not [info.key async for info in store.list("tables/") if "session_id=s1/" in info.key]
    again = await tables.delete_session("s1")
    assert (again.objects, again.size_bytes) == (0, 0)


async def test_the_transaction_log_knows_no_content(tables: Tables, url: str) -> None:
    await tables.replace_session("losses", "s1", [losses("s1", [1], reason="secret-name")])
    if url.startswith("file:"):
        log = Path(url.removeprefix("file://")) / "tables/losses/_delta_log"
        assert not any(b"secret-name" in file.read_bytes() for file in log.iterdir())


async def test_the_transaction_log_stays_short_and_who_was_away_meanwhile_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    busy, away = Tables(store), Tables(store)
    log = tmp_path / "tables/losses/_delta_log"

    def committed() -> list[int]:
        return sorted(int(file.stem) for file in log.glob("*.json"))

    async def commits(tables: Tables, numbers: Iterable[int]) -> None:
        for number in numbers:
            file = TableFile("a.parquet", 1, 1, {"start_ns": (0, 0), "end_ns": (0, 0)})
            await tables.replace_session_files("losses", f"s{number}", DAY, [file])

    await commits(away, [0])
    await commits(busy, range(1, 30))
    assert committed()[0] == 0
    assert list(log.glob("*.checkpoint.parquet"))
    before = time.time() - 11 * 60
    for file in log.iterdir():
        os.utime(file, (before, before))
    await commits(busy, range(30, 60))
    assert committed()[0] >= 19, "what is in the last checkpoint"
    await commits(away, [0, 60])
    assert len(DeltaTable(store.table_location("losses")[0]).file_uris()) == 61


def put_of(session_id: str, name: str = "a.parquet") -> tuple[str, date, list[TableFile]]:
    return session_id, DAY, [TableFile(name, 1, 1, {"start_ns": (0, 0), "end_ns": (0, 0)})]


async def test_what_other_writers_of_delta_did_is_seen(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    tables, uri = Tables(store), store.table_location("losses")[0]
    for session_id in ("s1", "s2", "s3"):
        await tables.replace_session_files("losses", *put_of(session_id))
    await Tables(store).delete_session("s1")
    # A file that is where no partition says, of a session that is there already.
    entry = Path(uri) / "_delta_log" / f"{DeltaTable(uri).version() + 1:020}.json"
    parts = {"day": "2026-11-21", "session_id": "s2"}
    add = {"path": "x/session_id=s3/b%20c.parquet", "partitionValues": parts, "size": 1, "modificationTime": 0}
    entry.write_text(json.dumps({"add": add | {"dataChange": True}}) + "\n")
    await tables.replace_session_files("losses", *put_of("s2", "c.parquet"))
    await tables.replace_session_files("losses", *put_of("s1", "d.parquet"))
    names = {session_id: await tables.session_files("losses", session_id) for session_id in ("s1", "s2", "s3")}
    assert names == {"s1": {"d.parquet"}, "s2": {"c.parquet"}, "s3": {"a.parquet"}}
    DeltaTable(uri).delete("session_id = 's2'")
    before = DeltaTable(uri).version()
    await tables.replace_session_files("losses", "s2", DAY, [])
    assert DeltaTable(uri).version() == before


async def test_a_log_that_is_just_being_shortened_is_not_gone_on_with(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    busy, away = Tables(store), Tables(store)
    await away.replace_session_files("losses", *put_of("s0"))
    for number in range(1, 25):
        await busy.replace_session_files("losses", *put_of(f"s{number}"))
    log = tmp_path / "tables/losses/_delta_log"
    # The entry that `away` has read last is there still.
    (log / f"{2:020}.json").unlink()
    await away.replace_session_files("losses", *put_of("s25"))
    assert not (log / f"{2:020}.json").exists()
    assert len(DeltaTable(store.table_location("losses")[0]).file_uris()) == 26


async def test_a_log_that_cannot_be_shortened_is_shortened_later(tmp_path: Path) -> None:
    tables, log = Tables(open_store(tmp_path.as_uri())), tmp_path / "tables/losses/_delta_log"
    await tables.replace_session_files("losses", *put_of("s0"))
    first, second = (log / f"{version:020}.checkpoint.parquet" for version in (19, 39))
    first.mkdir()
    for number in range(1, 40):
        await tables.replace_session_files("losses", *put_of(f"s{number}"))
    assert first.is_dir()
    assert second.is_file()
    assert len(await tables.files("losses")) == 40


async def test_the_log_of_a_table_of_many_files_is_shortened_more_seldom(tmp_path: Path) -> None:
    tables, log = Tables(open_store(tmp_path.as_uri())), tmp_path / "tables/losses/_delta_log"
    _, day, (file,) = put_of("s0")
    await tables.replace_session_files("losses", "s0", day, [replace(file, name=f"{n}.parquet") for n in range(3000)])
    for number in range(1, 80):
        await tables.replace_session_files("losses", *put_of(f"s{number}"))
    assert sorted(int(file.stem.partition(".")[0]) for file in log.glob("*.checkpoint.parquet")) == [39, 79]
    (log / "_last_checkpoint").write_text("damaged")
    for number in range(80, 100):
        await tables.replace_session_files("losses", *put_of(f"s{number}"))
    assert (log / f"{99:020}.checkpoint.parquet").is_file()


async def test_columns_that_come_while_a_table_is_known_are_seen(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    tables, uri = Tables(store), store.table_location("losses")[0]
    await tables.replace_session_files("losses", *put_of("s1"))
    DeltaTable(uri).alter.add_columns([Field("of_a_later_release", PrimitiveType("long"))])
    await tables.replace_session_files("losses", *put_of("s1", "b.parquet"))
    await tables.replace_session_files("losses", *put_of("s2"))
    assert len(DeltaTable(uri).file_uris()) == 2
    assert "of_a_later_release" in [column.name for column in DeltaTable(uri).schema().fields]


async def test_a_commit_whose_answer_was_lost_is_made_once(tmp_path: Path) -> None:
    class Deaf(FolderStore):
        def put_new(self, key: str, data: bytes) -> bool:
            super().put_new(key, data)
            return False

    deaf = Tables(Deaf(tmp_path))
    await deaf.replace_session_files("losses", *put_of("s1"))
    await deaf.replace_session_files("losses", *put_of("s1", "b.parquet"))
    found = DeltaTable(open_store(tmp_path.as_uri()).table_location("losses")[0])
    assert (found.version(), len(found.file_uris())) == (2, 1)


async def test_tables_that_were_taken_away_are_made_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    tables, other = Tables(store), Tables(store)
    for number in range(3):
        await tables.replace_session_files("losses", *put_of(f"s{number}"))
    shutil.rmtree(tmp_path / "tables")
    await tables.replace_session_files("losses", *put_of("s3"))
    assert await other.session_files("losses", "s3") == {"a.parquet"}
    # As many commits as before.
    shutil.rmtree(tmp_path / "tables")
    await other.replace_session_files("losses", *put_of("s4"))
    await tables.replace_session_files("losses", *put_of("s3"))
    files = await tables.files("losses")
    assert files == {TableFile.key("losses", DAY, session_id, "a.parquet") for session_id in ("s3", "s4")}


@pytest.mark.parametrize("damage", [b"", b"[1]", b"{", b'{"add": {"path": "x"}}', b"\xff"])
async def test_behind_a_damaged_commit_nothing_is_put(tmp_path: Path, damage: bytes) -> None:
    store = open_store(tmp_path.as_uri())
    tables = Tables(store)
    await tables.replace_session_files("losses", *put_of("s1"))
    log = tmp_path / "tables/losses/_delta_log"
    (log / f"{2:020}.json").write_bytes(damage)
    if damage:
        with pytest.raises(Unavailable, match="losses"):
            await tables.replace_session_files("losses", *put_of("s2"))
        assert len(list(log.glob("*.json"))) == 3
    else:
        # An entry of nothing is one.
        await tables.replace_session_files("losses", *put_of("s2"))
        assert len(DeltaTable(store.table_location("losses")[0]).file_uris()) == 2


def entry(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda log: entry(log, 5).unlink(), r"gap: 0{19}4\.json -> 0{19}6\.json$"),
        (lambda log: entry(log, 0).unlink(), "No table metadata"),
        (lambda log: entry(log, 5).write_bytes(b"{"), "Json"),
        (lambda log: (log / "_last_checkpoint").write_text('{"version": 77, "size": 3}'), "_last_checkpoint"),
    ],
    ids=["an entry is gone", "the first is gone", "an entry is damaged", "a checkpoint is gone"],
)
async def test_a_damaged_log_is_told_with_the_way_out(
    tmp_path: Path, damage: Callable[[Path], object], told: str
) -> None:
    store = open_store(tmp_path.as_uri())
    for number in range(8):
        await Tables(store).replace_session_files("losses", *put_of(f"s{number}"))
    log = tmp_path / "tables/losses/_delta_log"
    damage(log)
    for use in (Tables(store).datasets(), Tables(store).replace_session_files("losses", *put_of("s9"))):
        with pytest.raises(Unavailable, match=told) as error:
            await use
        assert error.value.reason == "TABLE_DAMAGED"
        assert "the table losses" in error.value.message and "move it away" in error.value.help
    log.rename(tmp_path / "away")
    await Tables(store).replace_session_files("losses", *put_of("s9"))
    assert await Tables(store).files("losses") == {TableFile.key("losses", DAY, "s9", "a.parquet")}


async def test_a_table_is_opened_anew_when_somebody_changed_it_and_only_then(url: str, tables: Tables) -> None:
    other = Tables(open_store(url))
    await other.replace_session("losses", "s1", [losses("s1", [1])])
    opened = await tables.dataset("losses")
    assert await tables.dataset("losses") is opened
    await other.replace_session("losses", "s2", [losses("s2", [2])])
    assert await offsets(tables, "s2") == [2]
    assert opened.count_rows() == 1
    await other.delete_session("s1")
    assert await offsets(tables, "s1") == []


async def test_files_are_read_with_the_credentials_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path.as_uri())
    tables = Tables(store)
    await tables.replace_session("losses", "s1", [losses("s1", [1])])
    opened = await tables.dataset("losses")
    place, _ = store.table_location("losses")
    monkeypatch.setattr(store, "table_location", lambda _: (place, {"aws_session_token": "renewed"}))
    renewed = await tables.dataset("losses")
    assert renewed is not opened
    assert await tables.dataset("losses") is renewed


async def test_a_table_made_anew_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    tables, other = (Tables(open_store(tmp_path.as_uri())) for _ in range(2))
    for number in range(3):
        await other.replace_session("losses", "s1", [losses("s1", [number])])
    assert await offsets(tables, "s1") == [2]
    (tmp_path / "tables/losses").rename(tmp_path / "away")
    assert await offsets(tables, "s1") == []
    for number in range(3):
        await Tables(open_store(tmp_path.as_uri())).replace_session("losses", "s9", [losses("s9", [number])])
    assert (await offsets(tables, "s1"), await offsets(tables, "s9")) == ([], [2])


async def test_a_table_that_wants_other_writers_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    tables = Tables(store)
    await tables.replace_session_files("losses", *put_of("s1"))
    DeltaTable(store.table_location("losses")[0]).alter.add_feature(
        TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True
    )
    with pytest.raises(PermilleError) as error:
        await tables.replace_session_files("losses", *put_of("s2"))
    assert (error.value.code, error.value.reason) == (Code.FAILED_PRECONDITION, "TABLE_PROTOCOL")


async def test_a_deletion_whose_commit_is_made_and_not_answered_is_one(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tables.replace_session("losses", "s1", [losses("s1", [1])])
    delete, deleted = DeltaTable.delete, []

    def unanswered(table: DeltaTable, *what: Any, **how: Any) -> Any:
        delete(table, *what, **how)
        deleted.append(table)
        if len(deleted) == 1:
            # As Delta says it of a commit that it finds in the place of its own, and which is its own.
            raise CommitFailedError

    monkeypatch.setattr(DeltaTable, "delete", unanswered)
    await tables.delete_session("s1")
    assert await offsets(tables, "s1") == []
    assert len(deleted) > 1


async def test_commits_and_deletions_at_once_leave_what_they_should(tables: Tables, url: str) -> None:
    store = open_store(url)
    count = 6 if url.startswith("file:") else 2
    for number in range(count):
        await tables.replace_session_files("losses", *put_of(f"old{number}"))
    others = [Tables(store) for _ in range(count)]
    await asyncio.gather(
        *(tables.replace_session_files("losses", *put_of(f"new{number}")) for number in range(count)),
        *(other.delete_session(f"old{number}") for number, other in enumerate(others)),
        *(other.replace_session_files("losses", *put_of(f"more{number}")) for number, other in enumerate(others)),
    )
    held = {key.split("session_id=")[1].split("/")[0] for key in await tables.files("losses")}
    assert held == {f"{kind}{number}" for kind in ("new", "more") for number in range(count)}


@pytest.mark.parametrize("session_id", ["", "a'b", "../x", "a/b", "x" * 129])
async def test_strange_session_ids_are_refused(tables: Tables, session_id: str) -> None:
    for use in (tables.delete_session(session_id), tables.replace_session("losses", session_id, [])):
        with pytest.raises(PermilleError) as error:
            await use
        assert (error.value.code, error.value.reason) == (Code.INVALID_ARGUMENT, "BAD_SESSION_ID")


async def test_an_unknown_table_is_told_with_the_known(tables: Tables) -> None:
    with pytest.raises(PermilleError) as error:
        await tables.dataset("call")
    assert error.value.code == Code.NOT_FOUND
    assert "calls" in error.value.help


async def test_a_store_that_is_away_is_told(s3_credentials: None) -> None:
    with pytest.raises(PermilleError) as error:
        await Tables(open_store("s3://bucket?endpoint=http://127.0.0.1:9")).dataset("calls")
    assert error.value.code == Code.UNAVAILABLE
    # And why, on one line.
    assert "127.0.0.1:9/bucket/" in error.value.message and "Connection refused" in error.value.message
    assert error.value.message.isprintable()


async def test_a_store_that_takes_what_is_asked_and_answers_nothing_is_told(
    s3_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_PATIENCE", {**s3._PATIENCE, "timeout": "1s", "retry_timeout": "1s"})
    with socket.create_server(("127.0.0.1", 0)) as server:
        tables = Tables(open_store(f"s3://bucket?endpoint=http://127.0.0.1:{server.getsockname()[1]}"))
        # Ten tries take longer.
        async with asyncio.timeout(9):
            with pytest.raises(PermilleError) as error:
                await tables.files("calls")
    assert error.value.code == Code.UNAVAILABLE


async def test_a_folder_that_is_away_is_no_store_without_tables(tmp_path: Path) -> None:
    store = open_store((tmp_path / "mounted").as_uri())
    tables = Tables(store)
    await store.put_stream("binaries/1", b"1")
    file = TableFile("a.parquet", 1, 1, {"start_ns": (0, 0), "end_ns": (0, 0)})
    await tables.replace_session_files("losses", "s1", DAY, [file])
    (tmp_path / "mounted").rename(tmp_path / "elsewhere")
    for ask in (
        lambda: tables.dataset("losses"),
        lambda: tables.files("losses"),
        lambda: tables.session_files("losses", "s1"),
        lambda: tables.replace_session_files("losses", "s1", DAY, [file]),
        lambda: tables.replace_session_files("calls", "s1", DAY, [file]),
    ):
        with pytest.raises(Unavailable, match="away"):
            await ask()
    # Nothing is put where the disk will be mounted.
    assert not (tmp_path / "mounted").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "mounted")
    assert await tables.session_files("losses", "s1") == {"a.parquet"}
    assert await tables.files("losses") == {TableFile.key("losses", DAY, "s1", "a.parquet")}


def sample(kind: pa.DataType) -> object:
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_string(kind):
        return "operator new(unsigned long) 'ß"
    return -(2**63) if kind == pa.int64() else 2**31 - 1


async def test_nothing_in_the_place_of_nothing_is_no_commit(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    tables, other = Tables(store), Tables(store)
    file = TableFile("a.parquet", 1, 1, {"start_ns": (0, 0), "end_ns": (0, 0)})

    def version() -> int:
        return DeltaTable(store.table_location("losses")[0]).version()

    await tables.replace_session_files("losses", "s1", DAY, [])
    before = version()
    await tables.replace_session_files("losses", "s1", DAY, [])
    assert version() == before
    # What others wrote since is seen.
    await other.replace_session_files("losses", "s1", DAY, [file])
    await tables.replace_session_files("losses", "s1", DAY, [])
    assert version() == before + 2
    assert DeltaTable(store.table_location("losses")[0]).file_uris() == []
