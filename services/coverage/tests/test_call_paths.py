"""Call paths: each once, over all sessions, with what a bounded walk leaves out counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.call_paths import MergedPaths, PathRow, Walked
from permille.coverage.domain.path_divergence import diverge_paths
from permille.coverage.domain.profile import Function
from permille.coverage.service.session_paths import SessionPaths
from permille.coverage.service.table_reader import TableReader
from permille.mesh.channels import Channels
from permille.mesh.config import MeshConfig
from permille.mesh.etcd import Etcd
from permille.mesh.table_schemas import SCHEMAS

from .coverage_process import Coverage
from .served_decoder import DecodedTables, Decoder, decoder_serving

MAIN, GET, SET, REPLY = (
    Function("/bin/server", "ab", address, name) for address, name in enumerate(("main", "get", "set", "reply"))
)


def part(*rows: tuple[str, Function, int, int], distinct: int = 0) -> Walked:
    """Rows of (path as letters, function, calls, total instructions); a path's caller is all but its last letter."""
    numbers = {"": 0} | {path: number for number, (path, *_) in enumerate(rows, 1)}
    found = tuple(PathRow(numbers[p], numbers.get(p[:-1], 99), f, calls, 1, total) for p, f, calls, total in rows)
    calls = sum(row.calls for row in found)
    return Walked(found, distinct or len(found), calls, 100, whole=not distinct)


def told(merged: MergedPaths, limit: int = 100) -> list[tuple[int, str, int, int]]:
    return [(path.above, path.function.name, path.calls, path.sessions) for path in merged.heaviest(limit)]


def test_one_path_of_two_replicas_is_one_and_the_same_function_under_another_caller_is_another() -> None:
    merged = MergedPaths()
    merged.add([part(("m", MAIN, 1, 90), ("mg", GET, 5, 80), ("mgr", REPLY, 5, 10))])
    merged.add([part(("m", MAIN, 1, 90), ("ms", SET, 3, 40), ("msr", REPLY, 3, 10), ("mg", GET, 1, 20))])
    assert told(merged) == [
        (-1, "main", 2, 2),
        (0, "get", 6, 2),
        (1, "reply", 5, 1),
        (0, "set", 3, 1),
        (3, "reply", 3, 1),
    ]
    assert (merged.distinct, merged.calls, merged.complete) == (5, 19, True)


def test_a_session_in_two_parts_is_one_session_and_one_that_lost_half_weighs_twice() -> None:
    merged = MergedPaths()
    merged.add([part(("m", MAIN, 1, 90)), part(("m", MAIN, 1, 10))], factor=2.0)
    (main,) = merged.heaviest(9)
    assert (main.calls, main.sessions, main.total_instructions, main.weighted) == (2, 1, 100, 200)
    assert merged.weighted_instructions == 400


def test_with_a_path_come_its_callers_even_where_a_recording_began_in_the_middle_of_them() -> None:
    merged = MergedPaths()
    merged.add([part(("m", MAIN, 1, 5), ("mg", GET, 9, 70), ("s", SET, 1, 6))])
    assert told(merged, 2) == [(-1, "set", 1, 1), (-1, "main", 1, 1)]
    assert told(merged, 3)[1:] == [(-1, "main", 1, 1), (1, "get", 9, 1)]


def test_what_has_no_room_is_counted_and_nothing_stands_under_a_caller_that_is_not_there() -> None:
    merged = MergedPaths(most=2)
    merged.add([part(("m", MAIN, 1, 90), ("mg", GET, 5, 80), ("ms", SET, 4, 70), ("msr", REPLY, 4, 60))])
    assert [name for _, name, *_ in told(merged)] == ["main", "get"]
    assert (merged.calls, merged.complete, merged.distinct) == (14, False, 4)


def test_a_path_that_one_side_alone_took_comes_first_and_where_that_is_not_sure_is_left_out() -> None:
    a, b, heaviest = MergedPaths(), MergedPaths(), MergedPaths()
    usual = (("m", MAIN, 1, 900), ("mg", GET, 500, 800))
    a.add([part(*usual)])
    b.add([part(*usual, ("mgr", REPLY, 100, 10))])
    heaviest.add([part(*usual, distinct=7)])
    rows, unsure = diverge_paths(a, b)
    assert ([place.name for place in rows[0].key], rows[0].only_in, unsure) == (["main", "get", "reply"], "b", 0)
    rows, unsure = diverge_paths(heaviest, b)
    assert ([row for row in rows if row.only_in], unsure) == ([], 1)


class Call(NamedTuple):
    """A row of the table; it does ten instructions of its own."""

    segment: int
    call: int
    parent: int
    function: Function
    whole: int = 10


def add(tables: DecodedTables, session_id: str, calls: Sequence[Call]) -> None:
    known: dict[str, Any] = {"session_id": session_id, "day": date(2026, 1, 1)}
    begin = {"session": f"nodes/n1/sessions/{session_id}", "target": "server", "start_ns": 1, "raw_bytes": 1}
    insert(tables, "sessions", [known | begin | {"end_ns": 9, "period_ms": 1, "lost_bytes": 0}])
    # A number of its own in each session, as the decoder gives them.
    numbers = {function: 7 + place for place, function in enumerate(dict.fromkeys(call.function for call in calls))}
    insert(tables, "functions", [
        known | {"function": number, "name": f.name, "module": f.module, "build_id": f.build_id, "address": f.address,
                 "calls": 1, "self_instructions": 10, "total_instructions": 10}
        for f, number in numbers.items()
    ])  # fmt: skip
    insert(tables, "calls", [
        known | {"segment": one.segment, "call": one.call, "parent": one.parent, "function": numbers[one.function],
                 "self_instructions": 10, "total_instructions": one.whole, "start_ns": 1}
        for one in calls
    ])  # fmt: skip


def insert(tables: DecodedTables, table: str, rows: list[dict[str, Any]]) -> None:
    tables.database.register("rows", pa.Table.from_pylist(rows, schema=SCHEMAS[table]))
    tables.database.execute(f"INSERT INTO {table} SELECT * FROM rows")


# In the second stream `main` was only found out when `set` had returned.
CALLS = [
    Call(0, 0, -1, MAIN, 50),
    Call(0, 1, 0, GET, 20),
    Call(0, 2, 1, REPLY),
    Call(0, 3, 0, GET, 20),
    Call(0, 4, 3, REPLY),
    Call(1, 0, 2, SET, 20),
    Call(1, 1, 0, REPLY),
    Call(1, 2, -1, MAIN, 30),
]


@pytest.fixture
async def decoder(mesh_config: MeshConfig) -> AsyncIterator[Decoder]:
    decoding = Decoder()
    async with decoder_serving(mesh_config, decoding):
        yield decoding


async def walked(
    config: MeshConfig, etcd: Etcd, session_id: str, room: int = 100, **limits: int
) -> tuple[MergedPaths, int]:
    channels = Channels(config, etcd)
    try:
        paths = SessionPaths(TableReader(channels, patience_s=60), **limits)
        parts = [one async for one in paths.walked(session_id, room)]
    finally:
        await channels.close()
    merged = MergedPaths()
    merged.add(parts)
    return merged, len(parts)


async def test_every_call_is_walked_from_its_outermost_caller(
    mesh_config: MeshConfig, etcd: Etcd, decoder: Decoder
) -> None:
    add(decoder.tables, "s1", CALLS)
    merged, parts = await walked(mesh_config, etcd, "s1")
    whole = [
        (-1, "main", 2, 1),
        (0, "get", 2, 1),
        (1, "reply", 2, 1),
        (0, "set", 1, 1),
        (3, "reply", 1, 1),
    ]
    assert (told(merged), parts, merged.calls, merged.weighted_instructions) == (whole, 1, 8, 80)
    # The same in two walks, one for each stream.
    merged, parts = await walked(mesh_config, etcd, "s1", most_calls=5)
    assert (told(merged), parts, merged.complete) == (whole, 2, True)


async def test_a_walk_is_bounded_in_calls_depth_and_rows_and_counts_what_it_leaves_out(
    mesh_config: MeshConfig, etcd: Etcd, decoder: Decoder
) -> None:
    add(decoder.tables, "s1", CALLS)
    merged, _ = await walked(mesh_config, etcd, "s1", most_calls=2)
    assert not merged.complete
    # The first two of each stream; the caller with the higher number is none of them.
    assert told(merged) == [(-1, "main", 1, 1), (0, "get", 1, 1), (-1, "set", 1, 1), (2, "reply", 1, 1)]
    assert merged.calls - sum(path.calls for path in merged.paths) == 4
    merged, parts = await walked(mesh_config, etcd, "s1", room=4, most_calls=5)
    # The first stream has five, the second three.
    assert ([name for _, name, *_ in told(merged)], merged.calls, parts) == (["main", "set", "reply"], 8, 2)
    assert not merged.complete
    merged, _ = await walked(mesh_config, etcd, "s1", most_depth=2)
    assert [name for _, name, *_ in told(merged)] == ["main", "get", "set"]
    merged, _ = await walked(mesh_config, etcd, "s1", most_rows=2)
    assert ([name for _, name, *_ in told(merged)], merged.complete, merged.distinct) == (["main", "get"], False, 5)


async def test_edges_and_paths_of_replicas_are_told_with_their_weights_and_compared(
    mesh_config: MeshConfig, etcd: Etcd, decoder: Decoder, tmp_path: Path
) -> None:
    add(decoder.tables, "s1", CALLS)
    add(decoder.tables, "s2", [Call(0, 0, -1, MAIN, 20), Call(0, 1, 0, GET)])
    coverage = Coverage(mesh_config, etcd, tmp_path / "coverage.log")
    await coverage.start()
    try:
        request = coverage_pb2.GetCoverageRequest(of=coverage_pb2.SessionSet(target="server"), edges=2, paths=2)
        found = await coverage._call("GetCoverage", request, coverage_pb2.GetCoverageResponse)
        edges = [(edge.caller, edge.callee, edge.calls, edge.sessions) for edge in found.edges]
        assert edges == [("main", "get", 3, 2), ("get", "reply", 2, 1)]
        assert [edge.share for edge in found.edges] == pytest.approx([3 / 7, 2 / 7])
        assert (found.edges_total, found.edges[0].weighted_calls) == (4, 3.0)
        paths = [(p.caller, p.name, p.calls, p.sessions, p.total_instructions) for p in found.paths]
        assert paths == [(0, "main", 3, 2, 100), (1, "get", 3, 2, 50)]
        assert (found.paths[0].share, found.paths_total, found.path_calls_left_out) == (1.0, 5, 4)
        a, b = (coverage_pb2.SessionSet(sessions=[name]) for name in ("s1", "s2"))
        diff = coverage_pb2.DiffCoverageRequest(a=a, b=b, paths=10)
        rows = (await coverage._call("DiffCoverage", diff, coverage_pb2.DiffCoverageResponse)).paths
        only = {(*row.callers, row.name): row.only_in for row in rows}
        assert only[("main", "get", "reply")] == only[("main", "set")] == "a"
    finally:
        await coverage.channels.close()
        await coverage.stop()
