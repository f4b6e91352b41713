"""SQL over the tables and over nothing else."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.query import QueryEngine
from permille.decoder.domain.query_limits import QueryLimits
from permille.decoder.domain.session_export import ExportFormat, ExportWish, SessionExports
from permille.decoder.main import DecoderSettings
from permille.mesh.errors import Code, PermilleError
from permille.mesh.store import open_store
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables
from pyarrow.fs import PyFileSystem
from pydantic import ValidationError

from .decode_bench import Bench, StoreSession

# Of gRPC's clients.
DEFAULT_MESSAGE_BYTES = 4 << 20
ENDLESS = "SELECT count(*) FROM range(100000000000) t(x), range(1000) u(y) WHERE x * y % 7 = 1"
GUIDE = (Path(__file__).parents[3] / "docs/user-guide.md").read_text()
OUTSIDE = [
    "COPY sessions TO '{file}'",
    "COPY (SELECT 1) TO '{file}'",
    "ATTACH '{file}' AS other",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE '{file}'",
    "IMPORT DATABASE '{file}'",
    "SET memory_limit = '100GB'",
    "RESET memory_limit",
    "SET enable_external_access = true",
    "PRAGMA database_list",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "CREATE SECRET s (TYPE s3)",
    "INSERT INTO sessions SELECT * FROM sessions",
    "DELETE FROM sessions",
    "UPDATE sessions SET node = 'x'",
    "DROP VIEW sessions",
    "CALL duckdb_settings()",
    "CHECKPOINT",
    "SELECT 1; SELECT 2",
    "",
    "SELECT * FROM read_csv('{existing}')",
    "SELECT * FROM read_text('{existing}')",
    "SELECT * FROM read_blob('{existing}')",
    "SELECT * FROM read_json('{existing}')",
    "SELECT * FROM read_parquet('{existing}')",
    "SELECT * FROM sniff_csv('{existing}')",
    "SELECT * FROM '{existing}'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    "SELECT getenv('HOME')",
    "SELECT * FROM query('COPY sessions TO ''{file}''')",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT * FROM datasets",
    "SELECT * FROM connection",
]


@pytest.fixture
async def tables(tmp_path: Path) -> Tables:
    tables = Tables(open_store((tmp_path / "store").as_uri()))
    for number in range(3):
        rows = [row("functions", session_id=f"s{number}", function=i, name=f"f{i}", calls=i) for i in range(10)]
        await put(tables, "functions", rows)
        await put(tables, "sessions", [row("sessions", session_id=f"s{number}")])
    # One that is not whole.
    await put(tables, "functions", [row("functions", session_id="s3", function=0, name="f0", calls=1000)])
    return tables


async def put(tables: Tables, table: str, rows: list[dict[str, object]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[table])
    await tables.replace_session(table, str(rows[0]["session_id"]), [batch])


def row(table: str, **values: object) -> dict[str, object]:
    empty = {"string": "", "bool": False, "date32[day]": date(2026, 11, 21)}
    return {field.name: empty.get(str(field.type), 0) for field in SCHEMAS[table]} | values


async def answer(tables: Tables, sql: str, max_rows: int = 0, **limits: Any) -> tuple[pa.Table, bool]:
    parts = [part async for part in QueryEngine(tables, QueryLimits(**limits)).run(sql, max_rows)]
    assert not any(part.truncated for part in parts[:-1])
    return pa.ipc.open_stream(b"".join(part.arrow_ipc for part in parts)).read_all(), parts[-1].truncated


async def test_the_tables_are_views(tables: Tables) -> None:
    found, truncated = await answer(tables, "SELECT name, sum(calls) AS n FROM functions GROUP BY name ORDER BY n DESC")
    assert found.to_pylist()[0] == {"name": "f9", "n": 27}
    assert found.num_rows == 10
    assert not truncated
    for name in SCHEMAS:
        found, _ = await answer(tables, f"SELECT * FROM {name} WHERE session_id = 's1'")
        assert found.num_rows == {"functions": 10, "sessions": 1}.get(name, 0)
    found, _ = await answer(tables, "SELECT * FROM functions WHERE session_id = 's3'")
    assert found.num_rows == 0


@pytest.mark.parametrize("table", SCHEMAS)
async def test_every_column_is_a_plain_word_in_sql(tables: Tables, table: str) -> None:
    found, _ = await answer(tables, f"SELECT {', '.join(SCHEMAS[table].names)} FROM {table}")
    assert found.column_names == SCHEMAS[table].names


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
        "FROM functions",
        "VALUES (1)",
        "DESCRIBE functions",
        "SUMMARIZE functions",
        "EXPLAIN SELECT * FROM functions",
        "SELECT 1 -- ; a comment",
        "SELECT ';'",
    ],
)
async def test_what_only_reads_is_allowed(tables: Tables, sql: str) -> None:
    found, _ = await answer(tables, sql)
    assert found.num_rows > 0


@pytest.mark.parametrize("sql", re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL))
async def test_the_queries_of_the_guide_are_answered(tables: Tables, sql: str) -> None:
    await answer(tables, sql)


@pytest.mark.parametrize("sql", OUTSIDE)
async def test_nothing_outside_the_tables_is_in_reach(tables: Tables, sql: str, tmp_path: Path) -> None:
    existing, file = tmp_path / "existing.csv", tmp_path / "written"
    existing.write_text("a,b\n1,2\n")
    before = set(tmp_path.iterdir())
    with pytest.raises(PermilleError) as error:
        await answer(tables, sql.format(existing=existing, file=file))
    assert (error.value.code, error.value.reason) == (Code.INVALID_ARGUMENT, "BAD_QUERY")
    assert set(tmp_path.iterdir()) == before
    found, _ = await answer(tables, "SELECT count(*) AS n FROM functions")
    assert found.to_pylist() == [{"n": 30}]


async def test_a_wrong_query_is_told_as_duckdb_tells_it(tables: Tables) -> None:
    with pytest.raises(PermilleError, match=r"(?s)nam.*name") as error:
        await answer(tables, "SELECT nam FROM functions")
    assert error.value.reason == "BAD_QUERY"
    assert "functions" in error.value.help


async def test_time_is_bounded(tables: Tables) -> None:
    with pytest.raises(PermilleError) as error:
        await answer(tables, ENDLESS, timeout_s=0.3)
    assert (error.value.code, error.value.reason) == (Code.DEADLINE_EXCEEDED, "QUERY_TIMEOUT")


@pytest.mark.parametrize(
    ("sql", "size_bytes"),
    [("SELECT repeat('x', 20000000)", 20_000_000), ("SELECT repeat('x', 1000) FROM range(30000)", 30_000_000)],
)
async def test_an_answer_comes_in_pieces_that_fit_a_message_whatever_its_rows_have(
    tables: Tables, sql: str, size_bytes: int
) -> None:
    parts = [part async for part in QueryEngine(tables, QueryLimits()).run(sql)]
    messages = [decoder_pb2.QueryResponse(arrow_ipc=part.arrow_ipc, truncated=True) for part in parts]
    assert max(message.ByteSize() for message in messages) < DEFAULT_MESSAGE_BYTES
    found, _ = await answer(tables, sql, max_rows=30_000)
    assert sum(len(str(row)) for row in found.column(0).to_pylist()) == size_bytes


async def test_a_caller_who_goes_away_ends_the_query(tables: Tables) -> None:
    asking = asyncio.create_task(answer(tables, ENDLESS, timeout_s=600))
    await asyncio.sleep(0.5)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_memory_is_bounded(tables: Tables) -> None:
    with pytest.raises(PermilleError) as error:
        await answer(tables, "SELECT list(x) FROM range(1000000000) t(x)", memory_mib=64)
    assert (error.value.code, error.value.reason) == (Code.RESOURCE_EXHAUSTED, "QUERY_MEMORY")


async def test_rows_on_their_way_out_count_for_the_memory(tables: Tables) -> None:
    wide = "SELECT repeat('x', 20000) FROM range(2048)"
    with pytest.raises(PermilleError) as error:
        await answer(tables, wide, memory_mib=16)
    assert error.value.reason == "QUERY_MEMORY"
    rows, truncated = await answer(tables, wide, max_rows=1, memory_mib=16)
    assert (rows.num_rows, truncated) == (1, True)


async def test_settings_let_no_more_memory_through_than_queries_can_be_told(tables: Tables) -> None:
    most = 1 << 30
    assert DecoderSettings(query_memory_mib=most).query_memory_mib == most
    assert (await answer(tables, "SELECT 1", memory_mib=most))[0].num_rows == 1
    with pytest.raises(ValidationError, match="query_memory_mib"):
        DecoderSettings(query_memory_mib=1 << 50)


@pytest.mark.parametrize(("asked", "got", "more"), [(0, 10_000, True), (7, 7, True), (30_000, 20_000, False)])
async def test_rows_are_bounded_and_it_says_so(tables: Tables, asked: int, got: int, more: bool) -> None:
    found, truncated = await answer(tables, "SELECT * FROM range(20000)", asked)
    assert (found.num_rows, truncated) == (got, more)


async def test_exactly_as_many_rows_as_asked_for_are_all(tables: Tables) -> None:
    found, truncated = await answer(tables, "SELECT * FROM range(50)", 50)
    assert (found.num_rows, truncated) == (50, False)


@pytest.mark.parametrize("asked", [-1, 10_000_001])
async def test_max_rows_has_bounds(tables: Tables, asked: int) -> None:
    with pytest.raises(PermilleError) as error:
        await answer(tables, "SELECT 1", asked)
    assert error.value.reason == "MAX_ROWS"


async def test_a_caller_who_leaves_ends_the_query(tables: Tables) -> None:
    engine = QueryEngine(tables, QueryLimits(at_once=1))
    running = engine.run("SELECT * FROM range(100000000000)", 10_000_000)
    await anext(running)
    await running.aclose()
    assert [part async for part in engine.run("SELECT 1")]


async def test_a_query_whose_answer_is_not_read_is_over_in_time_and_the_next_one_begins(tables: Tables) -> None:
    limits = QueryLimits(at_once=1, timeout_s=1)
    engine = QueryEngine(tables, limits)
    unread = engine.run("SELECT repeat('x', 1000) FROM range(10000000)", 10_000_000)
    await anext(unread)
    await asyncio.sleep(limits.timeout_s)
    assert [part async for part in engine.run("SELECT 1")]
    with pytest.raises(PermilleError, match="did not read") as error:
        async for _ in unread:
            pass
    assert (error.value.code, error.value.reason) == (Code.DEADLINE_EXCEEDED, "QUERY_TIMEOUT")


async def test_who_waits_for_other_queries_too_long_is_told_so(tables: Tables) -> None:
    engine = QueryEngine(tables, QueryLimits(at_once=1, timeout_s=0.3))
    async with engine._turn():
        with pytest.raises(PermilleError) as error:
            _ = [part async for part in engine.run("SELECT 1")]
    assert (error.value.code, error.value.reason) == (Code.RESOURCE_EXHAUSTED, "QUERIES_AT_ONCE")
    assert error.value.retry_after_s
    assert "queries_at_once" in error.value.help


async def test_a_table_that_cannot_be_opened_in_time_is_waited_for_no_longer(tables: Tables) -> None:
    class Stuck(Tables):
        async def datasets(self) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(PermilleError) as error:
        await answer(Stuck(tables._store), "SELECT 1", timeout_s=0.1)
    assert error.value.reason == "QUERY_TIMEOUT"


async def test_a_table_that_changes_while_it_is_read_is_asked_again(tables: Tables, tmp_path: Path) -> None:
    class Vanishing(Tables):
        async def dataset(self, table: str) -> Any:
            found = await super().dataset(table)
            for file in tmp_path.rglob("*.parquet"):
                file.unlink()
            return found

    with pytest.raises(PermilleError) as refused:
        await answer(Vanishing(tables._store), "SELECT * FROM functions")
    assert (refused.value.code, refused.value.reason) == (Code.UNAVAILABLE, "TABLE_CHANGED")
    assert refused.value.retry_after_s
    assert str(tmp_path) not in refused.value.message


async def test_a_table_that_may_not_be_read_any_more_is_told_so(
    conditional_s3_url: str, new_row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(open_store(conditional_s3_url))
    for table in ("sessions", "functions"):
        row = new_row(table, session_id="s1")
        await tables.replace_session(table, "s1", [pa.RecordBatch.from_pylist([row], schema=SCHEMAS[table])])
    opened = DeltaTable.to_pyarrow_dataset

    def with_keys_of_before(table: DeltaTable, **options: Any) -> Any:
        if not table.table_uri.rstrip("/").endswith("/functions"):
            return opened(table, **options)
        keys = {**(table._storage_options or {}), "aws_secret_access_key": "of before"}
        return opened(table, **options | {"filesystem": PyFileSystem(DeltaStorageHandler(table.table_uri, keys))})

    monkeypatch.setattr(DeltaTable, "to_pyarrow_dataset", with_keys_of_before)
    for use in ("query", "export"):
        with pytest.raises(PermilleError) as refused:
            if use == "query":
                await answer(tables, "SELECT * FROM functions")
            else:
                [piece async for piece in SessionExports(tables, tmp_path).run(ExportWish("s1", ExportFormat.FOLDED))]
        assert (refused.value.code, refused.value.reason) == (Code.PERMISSION_DENIED, "STORE_DENIED")


def test_reads_that_fail_at_once_end_nothing_but_their_queries(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, Path(__file__).with_name("failing_reads.py"), tmp_path / "table"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (told.stdout, told.returncode) == ("TABLE_CHANGED\n", 0), told.stderr


@pytest.mark.parametrize("how", ["gone", "cut off", "empty"])
async def test_a_file_that_is_damaged_is_named_with_the_way_out(
    bench: Bench, store_session: StoreSession, tmp_path: Path, how: str
) -> None:
    for session_id in ("s1", "s2"):
        await store_session(session_id)
        await bench.decode(session_id)
    (file,) = (tmp_path / "store/tables/calls").rglob("session_id=s1/*.parquet")
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100] if how == "cut off" else b"")

    async def exported() -> int:
        wish = ExportWish("s1", ExportFormat.FOLDED)
        return sum([len(piece.data) async for piece in SessionExports(bench.tables, tmp_path / "scratch").run(wish)])

    sum_of = "SELECT sum(self_instructions) FROM calls WHERE session_id = '{}'"
    for use in (answer(bench.tables, sum_of.format("s1")), exported()):
        with pytest.raises(PermilleError) as refused:
            await use
        assert (refused.value.code, refused.value.reason) == (Code.UNAVAILABLE, "TABLE_CHANGED")
        assert f"session_id=s1/{file.name}" in refused.value.message
        assert str(tmp_path) not in refused.value.message
        assert "`permille report s1 --again`" in refused.value.help
    assert (await answer(bench.tables, sum_of.format("s2")))[0].to_pylist() == [{"sum(self_instructions)": 24}]
    await bench.decode()
    assert (await answer(bench.tables, sum_of.format("s1")))[0].to_pylist() == [{"sum(self_instructions)": 24}]
    assert await exported()
