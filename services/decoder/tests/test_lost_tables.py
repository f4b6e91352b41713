"""Sessions of which a table has lost its files: seen whole where the store has them still, or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from permille.decoder.service.store_tidying import StoreTidying

from .decode_bench import Bench, StoreSession


async def seen(bench: Bench) -> dict[str, dict[str, int]]:
    """By session how many rows each table has of it, as queries see them."""
    counts: dict[str, dict[str, int]] = {}
    for table, dataset in (await bench.tables.datasets()).items():
        for row in dataset.to_table(columns=["session_id"]).to_pylist():
            of_session = counts.setdefault(row["session_id"], {})
            of_session[table] = of_session.get(table, 0) + 1
    return counts


@pytest.mark.parametrize("table", ["segments", "functions", "calls"])
@pytest.mark.parametrize("lost", ["the log", "the table"])
async def test_what_a_table_lost_is_seen_as_it_was_or_not_at_all(  # noqa: PLR0917
    bench: Bench, store_session: StoreSession, tidying: StoreTidying, tmp_path: Path, table: str, lost: str
) -> None:
    for session_id in ("s1", "s2"):
        await store_session(session_id)
        await bench.decode(session_id)
    # Of this one there never was a call.
    await store_session("empty", runs=[b""])
    await bench.decode("empty")
    before = await seen(bench)
    shutil.rmtree(tmp_path / "store/tables" / table / ("_delta_log" if lost == "the log" else ""))
    without = await seen(bench)
    assert without == ({} if table == "segments" else {"empty": before["empty"]})
    await bench.decode("s1")
    for _ in range(3):
        again = await seen(bench)
        assert again == (before if lost == "the log" else without | {"s1": before["s1"]})
        await tidying.sweep()
    for session_id in ("s2", "empty"):
        await bench.decode(session_id)
    assert await seen(bench) == before


@pytest.mark.parametrize(
    ("named", "calls"), [({"later": ["a.parquet"]}, 8), ({"calls": 5}, 0), ({"calls": ["../../x"]}, 0)]
)
async def test_what_a_row_names_may_be_of_a_later_release_or_nothing(
    bench: Bench, store_session: StoreSession, tmp_path: Path, named: dict[str, Any], calls: int
) -> None:
    await store_session()
    await bench.decode(decode_id="d1")
    (row,) = (tmp_path / "store/tables/sessions").rglob("part-d1-*.parquet")
    rows, size = pq.read_table(row, partitioning=None), row.stat().st_size
    key = b"permille.files"
    files = json.loads((pq.read_metadata(row).metadata or {})[key]) | named
    pq.write_table(rows.replace_schema_metadata({key: json.dumps(files)}), row)
    entry = tmp_path / f"store/tables/sessions/_delta_log/{1:020}.json"
    entry.write_text(entry.read_text().replace(f'"size": {size}', f'"size": {row.stat().st_size}'))
    # The calls are where the row says they are, if it does.
    shutil.rmtree(tmp_path / "store/tables/calls/_delta_log")
    await store_session("s2")
    await bench.decode("s2")
    assert (await seen(bench))["s1"].get("calls", 0) == calls


@pytest.mark.parametrize("how", ["gone", "damaged"])
async def test_a_row_that_cannot_be_read_is_of_no_use_while_its_session_is_decoded_again(
    bench: Bench, store_session: StoreSession, tmp_path: Path, how: str
) -> None:
    await store_session()
    await bench.decode(decode_id="d1")
    before = await seen(bench)
    await bench.decode(decode_id="d2")
    log = tmp_path / "store/tables/sessions/_delta_log"
    # As between two commits: all tables but the last have the next decode.
    (log / f"{2:020}.json").unlink()
    (row,) = (tmp_path / "store/tables/sessions").rglob("part-d1-*.parquet")
    row.write_bytes(b"damaged")
    if how == "gone":
        row.unlink()
    assert await seen(bench) == {}
    await bench.decode(decode_id="d3")
    assert await seen(bench) == before
