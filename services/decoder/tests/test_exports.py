"""A session in other tools' formats, read back by what reads them."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from permille.api.decoder.v1 import profile_pb2
from permille.decoder.domain.by_segment import by_segment
from permille.decoder.domain.call_nesting import nested_events
from permille.decoder.domain.call_tree import CallNode, call_tree
from permille.decoder.domain.exports import folded, perfetto, pprof, speedscope
from permille.decoder.domain.inlined_chain import Chain, chain_of
from permille.decoder.domain.inlined_shares import divided
from permille.decoder.domain.interruptible import interruptible
from permille.decoder.domain.query import QueryEngine
from permille.decoder.domain.query_limits import QueryLimits
from permille.decoder.domain.session_export import ExportFormat, ExportWish, SessionExports
from permille.decoder.domain.session_rows import Call, SessionRows, Thread
from permille.mesh.errors import Code, PermilleError
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

SESSION = "small"
START_NS = 1_800_000_000_000_000_000
FIND = "std::map<int, char; long>::find(int)"


async def exported(tables: Tables, tmp_path: Path, wish: ExportWish) -> tuple[bytes, int]:
    pieces = [piece async for piece in SessionExports(tables, tmp_path / "scratch").run(wish)]
    assert list((tmp_path / "scratch").iterdir()) == []
    return b"".join(piece.data for piece in pieces), pieces[-1].omitted_calls


async def test_folded_stacks_add_up_to_the_time_that_was_spent(decoded: Tables, tmp_path: Path) -> None:
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.FOLDED))
    stacks = dict(line.rsplit(" ", 1) for line in data.decode().splitlines())
    find = FIND.replace(";", ":")
    assert stacks == {
        "app;t0 (70);main": "200",
        f"app;t0 (70);main;{find}": "600",
        f"app;t0 (70);main;{find};0x7f0000001234": "200",
        "app;t0 (70);strlen": "500",
        f"app;t1 (71);{find}": "10",
    }


async def test_speedscope_has_a_well_nested_profile_for_each_thread(decoded: Tables, tmp_path: Path) -> None:
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.SPEEDSCOPE))
    file = json.loads(data)
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = file["shared"]["frames"]
    assert frames[1] == {"name": FIND, "file": "app.cc", "line": 40}
    assert [profile["name"] for profile in file["profiles"]] == ["t0 (70)", "t1 (71)"]
    for profile, calls in zip(file["profiles"], (7, 1), strict=True):
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        assert require_nested(profile["events"], profile["startValue"], profile["endValue"]) == calls
        assert {event["frame"] for event in profile["events"]} <= set(range(len(frames)))
    assert file["profiles"][0]["events"][0] == {"type": "O", "at": 0, "frame": 0}


def require_nested(events: list[dict[str, Any]], start: int, end: int) -> int:
    """The rules of speedscope's importer: times never go back, what closes is what opened last, all closes."""
    stack, now, opened = [], start, 0
    for event in events:
        assert now <= event["at"] <= end
        now = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
            opened += 1
        else:
            assert event["type"] == "C"
            assert stack.pop() == event["frame"]
    assert not stack
    return opened


async def test_perfetto_has_a_track_for_each_thread_and_a_slice_for_each_call(decoded: Tables, tmp_path: Path) -> None:
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PERFETTO))
    trace = perfetto_trace_pb2.Trace.FromString(data)
    names: dict[int, str] = {}
    tracks: dict[int, str] = {}
    stacks: dict[int, list[tuple[str, int]]] = {}
    slices = []
    for packet in trace.packet:
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        if packet.HasField("track_descriptor") and packet.track_descriptor.HasField("thread"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.thread.thread_name
            stacks[packet.track_descriptor.uuid] = []
        if packet.HasField("track_event"):
            track, event = packet.track_event.track_uuid, packet.track_event
            if event.type == event.TYPE_SLICE_BEGIN:
                stacks[track].append((names[event.name_iid], packet.timestamp))
            else:
                depth = len(stacks[track]) - 1
                name, begun = stacks[track].pop()
                slices.append((tracks[track], depth, name, begun - START_NS, packet.timestamp - START_NS))
    assert not any(stacks.values())
    assert trace.packet[0].first_packet_on_sequence
    assert sorted(slices) == sorted(
        [
            ("t0", 0, "main", 0, 1000),
            ("t0", 1, FIND, 100, 400),
            ("t0", 2, "0x7f0000001234", 150, 250),
            ("t0", 2, "0x7f0000001234", 260, 260),
            ("t0", 1, FIND, 400, 900),
            ("t0", 2, "0x7f0000001234", 500, 600),
            ("t0", 0, "strlen", 1000, 1500),
            ("t1", 0, FIND, 50, 60),
        ]
    )


async def test_the_longest_calls_are_kept_and_the_others_counted(decoded: Tables, tmp_path: Path) -> None:
    data, omitted = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.SPEEDSCOPE, max_calls=3))
    assert omitted == 5
    (profile,) = json.loads(data)["profiles"]
    opened = [(event["at"], event["frame"]) for event in profile["events"] if event["type"] == "O"]
    assert opened == [(0, 0), (400, 1), (1000, 3)]
    _, omitted = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.SPEEDSCOPE, max_calls=100))
    assert omitted == 0


async def test_deep_calls_are_left_out_and_counted_among_those_that_are_kept(decoded: Tables, tmp_path: Path) -> None:
    async def opened(wish: ExportWish) -> tuple[list[tuple[int, int]], int, int]:
        pieces = [piece async for piece in SessionExports(decoded, tmp_path / "scratch").run(wish)]
        profiles = json.loads(b"".join(piece.data for piece in pieces))["profiles"]
        events = [event for profile in profiles for event in profile["events"]]
        begins = [(event["at"], event["frame"]) for event in events if event["type"] == "O"]
        return begins, pieces[-1].omitted_calls, pieces[-1].deeper_calls

    wish = ExportWish(SESSION, ExportFormat.SPEEDSCOPE)
    whole, *_ = await opened(wish)
    assert await opened(replace(wish, max_depth=3)) == (whole, 0, 0)
    outermost, omitted, deeper = await opened(replace(wish, max_depth=1))
    assert (omitted, deeper) == (0, len(whole) - len(outermost)) and len(outermost) == 3
    # Of the three longest one has a caller.
    assert await opened(replace(wish, max_calls=3, max_depth=1)) == ([(0, 0), (1000, 3)], 5, 1)


async def test_what_a_call_that_is_left_out_did_is_its_callers_own(decoded: Tables, tmp_path: Path) -> None:
    data, omitted = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PPROF, max_calls=3))
    assert omitted == 5
    profile = profile_pb2.Profile.FromString(gzip.decompress(data))
    text = list(profile.string_table)
    names = {function.id: text[function.name] for function in profile.function}
    where = {location.id: names[location.line[0].function_id] for location in profile.location}
    samples = {tuple(where[number] for number in sample.location_id): list(sample.value) for sample in profile.sample}
    # The other FIND, and the two that it called, are main's; the one below the FIND that is kept is that one's.
    assert samples == {("main",): [1, 36, 500], (FIND, "main"): [1, 35, 500], ("strlen",): [1, 7, 500]}


async def test_pprof_sums_equal_stacks(decoded: Tables, tmp_path: Path) -> None:
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PPROF))
    profile = profile_pb2.Profile.FromString(gzip.decompress(data))
    text = list(profile.string_table)
    assert [text[kind.type] for kind in profile.sample_type] == ["calls", "instructions", "time"]
    names = {function.id: text[function.name] for function in profile.function}
    where = {location.id: names[location.line[0].function_id] for location in profile.location}
    samples = {tuple(where[number] for number in sample.location_id): list(sample.value) for sample in profile.sample}
    assert samples[("0x7f0000001234", FIND, "main")] == [3, 11, 200]
    assert samples[(FIND, "main")] == [2, 50, 600]
    assert sum(value[0] for value in samples.values()) == 8


@pytest.mark.parametrize("target", ["app", "some.slice"])
async def test_the_first_mapping_of_pprof_is_the_program(
    decoded: Tables, new_row: Callable[..., dict[str, Any]], tmp_path: Path, target: str
) -> None:
    modules = ["[vdso]", "/usr/lib/libc.so.6", "/opt/app", ""]
    rows = [
        new_row("functions", function=number, name="f", module=module, build_id=f"{number:040x}", session_id=SESSION)
        for number, module in enumerate(modules)
    ]
    await decoded.replace_session("functions", SESSION, [pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["functions"])])
    session = new_row("sessions", session_id=SESSION, target=target)
    await decoded.replace_session("sessions", SESSION, [pa.RecordBatch.from_pylist([session], SCHEMAS["sessions"])])
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PPROF))
    profile = profile_pb2.Profile.FromString(gzip.decompress(data))
    text = list(profile.string_table)
    told = {one.id: (text[one.filename], text[one.build_id]) for one in profile.mapping}
    assert text[profile.mapping[0].filename] == "/opt/app" and profile.mapping[0].id == 1
    assert [told[location.mapping_id] for location in profile.location] == [
        (module or "?", f"{number:040x}") for number, module in enumerate(modules)
    ]


HOSTILE = (
    "=cmd|'/c calc'!A0",
    'a"b,c;d</script><!--',
    "one\r\ntwo\u2028three\x85four\x0bfive 7",
    "\u202egnp\x00\x1b[31m" + "x" * 5000,
)


@pytest.fixture
async def hostile(decoded: Tables, new_row: Callable[..., dict[str, Any]]) -> Tables:
    """The functions have the names HOSTILE."""
    names = [*HOSTILE, *("plain" for _ in range(4))]
    rows = [new_row("functions", function=number, name=name) for number, name in enumerate(names)]
    batch = pa.RecordBatch.from_pylist([row | {"session_id": SESSION} for row in rows], schema=SCHEMAS["functions"])
    await decoded.replace_session("functions", SESSION, [batch])
    return decoded


async def test_a_name_cannot_end_a_folded_stack(hostile: Tables, tmp_path: Path) -> None:
    data, _ = await exported(hostile, tmp_path, ExportWish(SESSION, ExportFormat.FOLDED))
    lines = data.decode().splitlines()
    assert len(lines) == 5
    assert all(line.startswith("app;t") and line.rsplit(" ", 1)[1].isdigit() for line in lines)
    assert any("one two three four five 7" in line for line in lines)


async def test_formats_that_can_hold_any_name_hold_it_as_it_is(hostile: Tables, tmp_path: Path) -> None:
    data, _ = await exported(hostile, tmp_path, ExportWish(SESSION, ExportFormat.SPEEDSCOPE))
    assert {frame["name"] for frame in json.loads(data)["shared"]["frames"]} >= set(HOSTILE)
    data, _ = await exported(hostile, tmp_path, ExportWish(SESSION, ExportFormat.PPROF))
    assert set(profile_pb2.Profile.FromString(gzip.decompress(data)).string_table) >= set(HOSTILE)
    data, _ = await exported(hostile, tmp_path, ExportWish(SESSION, ExportFormat.PERFETTO))
    trace = perfetto_trace_pb2.Trace.FromString(data)
    assert {one.name for packet in trace.packet for one in packet.interned_data.event_names} >= set(HOSTILE)
    # A spreadsheet may take `=` for a formula; other readers would take a mark in front of it for a part of the name.
    data, _ = await exported(hostile, tmp_path, ExportWish(SESSION, ExportFormat.CSV, table="functions"))
    assert {row["name"] for row in csv.DictReader(io.StringIO(data.decode(), newline=""))} >= set(HOSTILE)


@pytest.fixture
async def with_inlined(decoded: Tables, new_row: Callable[..., dict[str, Any]]) -> Tables:
    """Of the 50 instructions of FIND in the first thread 10 are of `probe` and 20 of `hash`, inlined in that."""
    rows = [
        new_row("inlined", function=1, name=name, chain=chain, depth=depth, instructions=instructions)
        | {"session_id": SESSION}
        for name, chain, depth, instructions in (("probe", "probe", 1, 10), ("hash", "probe > hash", 2, 20))
    ]
    await decoded.replace_session("inlined", SESSION, [pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["inlined"])])
    return decoded


async def test_folded_stacks_end_in_what_was_inlined(with_inlined: Tables, tmp_path: Path) -> None:
    data, _ = await exported(with_inlined, tmp_path, ExportWish(SESSION, ExportFormat.FOLDED))
    stacks = dict(line.rsplit(" ", 1) for line in data.decode().splitlines())
    find = FIND.replace(";", ":")
    assert stacks == {
        "app;t0 (70);main": "200",
        f"app;t0 (70);main;{find}": "240",
        f"app;t0 (70);main;{find};probe_[i]": "120",
        f"app;t0 (70);main;{find};probe_[i];hash_[i]": "240",
        f"app;t0 (70);main;{find};0x7f0000001234": "200",
        "app;t0 (70);strlen": "500",
        f"app;t1 (71);{find}": "10",
    }


async def test_pprof_has_the_lines_of_inlined_functions_in_a_location(with_inlined: Tables, tmp_path: Path) -> None:
    data, _ = await exported(with_inlined, tmp_path, ExportWish(SESSION, ExportFormat.PPROF))
    profile = profile_pb2.Profile.FromString(gzip.decompress(data))
    text = list(profile.string_table)
    names = {function.id: text[function.name] for function in profile.function}
    assert len(names) == len(profile.function)
    where = {location.id: tuple(names[line.function_id] for line in location.line) for location in profile.location}
    assert len(where) == len(profile.location)
    samples = {tuple(where[number] for number in sample.location_id): list(sample.value) for sample in profile.sample}
    assert samples[((FIND,), ("main",))] == [2, 20, 240]
    assert samples[(("probe", FIND), ("main",))] == [0, 10, 120]
    assert samples[(("hash", "probe", FIND), ("main",))] == [0, 20, 240]
    assert samples[(("0x7f0000001234",), (FIND,), ("main",))] == [3, 11, 200]
    assert sum(value[0] for value in samples.values()) == 8


@given(
    own=st.integers(0, 100),
    weights=st.lists(st.integers(0, 1 << 40), max_size=5),
    node=st.builds(CallNode, st.just(1), *[st.integers(0, 1 << 50)] * 3),
)
def test_what_is_divided_adds_up(own: int, weights: list[int], node: CallNode) -> None:
    parts: list[tuple[Chain, int]] = [((), own), *(((str(number),), weight) for number, weight in enumerate(weights))]
    shares = list(divided(node, parts))
    whole = [
        sum(column) for column in zip(*((one.calls, one.self_instructions, one.self_ns) for one in shares), strict=True)
    ]
    assert whole == [node.calls, node.self_instructions, node.self_ns]
    assert all(min(one[1:]) >= 0 for one in shares)


def test_a_chain_is_its_names_also_where_one_of_them_looks_like_two() -> None:
    assert chain_of("middle > innermost", "innermost", 2) == ("middle", "innermost")
    assert chain_of("alone", "alone", 1) == ("alone",)
    vector = "push(vector<vector<int> > const&)"
    assert chain_of(f"middle > {vector}", vector, 2) == ("middle", vector)
    assert chain_of(f"middle > {vector} > innermost", "innermost", 3) == (f"middle > {vector}", "innermost")


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go, for its pprof")
async def test_go_reads_the_pprof_profile(decoded: Tables, tmp_path: Path) -> None:
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PPROF))
    (tmp_path / "profile.pb.gz").write_bytes(data)
    shown = subprocess.run(
        ["go", "tool", "pprof", "-top", "-sample_index=instructions", str(tmp_path / "profile.pb.gz")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "no such tool" in shown.stderr:
        pytest.skip("this go has no pprof")
    assert shown.returncode == 0, shown.stderr
    flat = {" ".join(line.split()[5:]): line.split()[0] for line in shown.stdout.splitlines()[4:]}
    assert flat["main"] == "10"
    assert flat["strlen"] == "7"


async def test_folded_stacks_without_time_are_told_and_no_empty_file(
    decoded: Tables, new_row: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    at = {"session_id": SESSION, "start_ns": START_NS, "end_ns": START_NS}
    rows = [new_row("calls", call=number, total_instructions=5, self_instructions=5, **at) for number in range(3)]
    await decoded.replace_session("calls", SESSION, [pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["calls"])])
    with pytest.raises(PermilleError) as error:
        await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.FOLDED))
    assert (error.value.code, error.value.reason) == (Code.FAILED_PRECONDITION, "NO_TIMES")
    assert "3 calls" in error.value.message and "pprof" in error.value.help
    assert await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PPROF))
    await decoded.replace_session("calls", SESSION, [])
    assert await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.FOLDED)) == (b"", 0)


def tables_of(threads: int, calls: str) -> duckdb.DuckDBPyConnection:
    """`calls`: columns and where they are from. One function, which has another one inlined in every thread."""
    connection = duckdb.connect(":memory:")
    for table, selected in (
        ("segments", f"range::INT AS segment, 70 AS pid, range AS tid, 't' AS thread FROM range({threads})"),
        ("functions", "0 AS function, 'f' AS name, '' AS module, '' AS file, 0 AS line, 0 AS address,"
         " '' AS symbol_status, '' AS category, '' AS build_id"),
        ("inlined", "range::INT AS segment, 0 AS function, 'g' AS chain, 'g' AS name, 1 AS depth,"
         f" 1 AS instructions FROM range({threads})"),
        ("calls", calls),
    ):  # fmt: skip
        connection.execute(f"CREATE TABLE {table} AS SELECT {selected}")
    return connection


def recursion(levels: int) -> SessionRows:
    """One function that calls itself, a nanosecond later each time."""
    connection = tables_of(
        1,
        "0 AS segment, range AS call, range AS depth, 0 AS function, range AS start_ns, 1 AS self_instructions,"
        f" {2 * levels} - range AS end_ns, {levels} - range AS total_instructions FROM range({levels})",
    )
    connection.execute("DELETE FROM inlined")
    session = {"target": "app", "session_id": "deep", "start_ns": 0, "end_ns": 2 * levels}
    return SessionRows(connection, connection.cursor(), session)


def test_a_profile_of_deep_stacks_is_never_held_as_a_whole() -> None:
    parts = [part.SerializeToString() for part in pprof.profile_parts(recursion(2000))]
    whole = b"".join(parts)
    assert max(map(len, parts)) < len(whole) // 4
    profile = profile_pb2.Profile.FromString(whole)
    assert [len(sample.location_id) for sample in profile.sample] == list(range(1, 2001))
    assert {tuple(sample.value) for sample in profile.sample[:-1]} == {(1, 1, 2)}
    assert profile.string_table[profile.function[0].name] == "f"


def test_the_stacks_of_a_recursion_take_as_long_as_it_is_deep() -> None:
    levels = 100_000
    tree = call_tree(Call(depth, 0, 0, 0, 0) for depth in range(levels))
    begun_s = time.process_time()
    assert [len(stack) for stack, _ in tree.stacks()] == list(range(1, levels + 1))
    # As long as copies of whole stacks it takes a hundred times as long.
    assert time.process_time() - begun_s < 3


class EndlessTree:
    """Of call stacks without time, which folded has no line for; until `released`."""

    def __init__(self) -> None:
        self.told = 0
        self.begun, self.released = threading.Event(), threading.Event()

    def stacks(self) -> Iterator[tuple[tuple[int, ...], CallNode]]:
        self.begun.set()
        while not self.released.wait(0.001):
            self.told += 1
            yield (0,), CallNode(0)


@pytest.mark.parametrize("form", [ExportFormat.FOLDED, ExportFormat.PPROF])
async def test_a_caller_who_goes_away_ends_the_export(
    decoded: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: ExportFormat
) -> None:
    tree = EndlessTree()
    for module in (folded, pprof):
        monkeypatch.setattr(module, "call_tree", lambda _: tree)
    asking = asyncio.create_task(exported(decoded, tmp_path, ExportWish(SESSION, form)))
    assert await asyncio.to_thread(tree.begun.wait, 60)
    asking.cancel()
    ended, _ = await asyncio.wait({asking}, timeout=60)
    told = tree.told
    await asyncio.sleep(0.1)
    goes_on = tree.told > told
    tree.released.set()
    assert ended and asking.cancelled() and not goes_on
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.fixture
async def long(decoded: Tables, new_row: Callable[..., dict[str, Any]]) -> Tables:
    """The session has 20 MB of calls."""
    row = new_row("calls", session_id=SESSION, name="a long name " * 100)
    batch = pa.RecordBatch.from_pylist([row] * 1000, schema=SCHEMAS["calls"])
    await decoded.replace_session("calls", SESSION, [batch] * 20)
    return decoded


async def test_what_the_engine_cannot_compute_is_no_table_that_has_changed(
    decoded: Tables, new_row: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    times = {"start_ns": -(1 << 62) - 5, "end_ns": (1 << 62) + 5}
    rows = [new_row("calls", session_id=SESSION, call=1) | times, new_row("calls", session_id=SESSION, call=2)]
    await decoded.replace_session("calls", SESSION, [pa.RecordBatch.from_pylist(rows, schema=SCHEMAS["calls"])])
    with pytest.raises(duckdb.Error):
        await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.SPEEDSCOPE, max_calls=1))


async def test_no_more_exports_run_at_once_than_may(long: Tables, tmp_path: Path) -> None:
    exports = SessionExports(long, tmp_path / "scratch", at_once=2)
    wish = ExportWish(SESSION, ExportFormat.CSV)
    running = [exports.run(wish) for _ in range(2)]
    for one in running:
        await anext(one)
    third = exports.run(wish)
    waiting = asyncio.create_task(anext(third))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    assert len(list((tmp_path / "scratch").iterdir())) == 2
    for one in running:
        await one.aclose()
    assert (await waiting).data
    await third.aclose()


async def test_an_export_whose_client_does_not_read_is_over_and_the_next_one_begins(
    long: Tables, tmp_path: Path
) -> None:
    exports = SessionExports(long, tmp_path / "scratch", at_once=1, unread_s=0.2)
    wish = ExportWish(SESSION, ExportFormat.CSV)
    unread = exports.run(wish)
    await anext(unread)
    assert [piece async for piece in exports.run(wish)]
    assert list((tmp_path / "scratch").iterdir()) == []
    with pytest.raises(PermilleError) as error:
        async for _ in unread:
            pass
    assert (error.value.code, error.value.reason) == (Code.DEADLINE_EXCEEDED, "EXPORT_UNREAD")


async def test_queries_and_exports_have_threads_of_their_own(decoded: Tables, tmp_path: Path) -> None:
    opened = await decoded.datasets()

    class Opened(Tables):
        async def datasets(self) -> dict[str, ds.Dataset]:
            return opened

    tables, shared = Opened(decoded._store), ThreadPoolExecutor(1)
    shared.shutdown()
    asyncio.get_running_loop().set_default_executor(shared)
    assert [part async for part in QueryEngine(tables, QueryLimits()).run("FROM calls")]
    assert (await exported(tables, tmp_path, ExportWish(SESSION, ExportFormat.CSV)))[0]


def test_rows_that_nobody_waits_for_are_read_no_further() -> None:
    connection = duckdb.connect(":memory:")
    connection.execute(
        "CREATE VIEW calls AS SELECT 0 AS segment, range AS call, 0 AS depth, 0 AS function, 0 AS start_ns,"
        " 1 AS end_ns, 2 AS total_instructions FROM range(200000)"
    )
    rows = SessionRows(connection, connection.cursor(), {})
    calls, numbers = next(rows.calls([Thread(0, 7, 70, "t0")])), rows.until_interrupted(count())
    assert (next(calls), next(numbers)) == (Call(0, 0, 0, 1, 2), 0)
    rows.interrupt()
    with pytest.raises(duckdb.InterruptException):
        next(numbers)
    # Arrow tells of a query that was interrupted by an error of its own.
    with pytest.raises((duckdb.InterruptException, OSError)):
        list(calls)


class CountingConnection:
    """Counts what is asked of a connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        return getattr(self._connection, name)


@pytest.mark.parametrize("form", [perfetto.perfetto, speedscope.speedscope, folded.folded, pprof.pprof])
def test_many_threads_are_read_with_as_many_queries_as_one(form: Callable[[SessionRows], Iterator[bytes]]) -> None:
    def asked(threads: int) -> int:
        connection = tables_of(
            threads,
            "range::INT AS segment, 0 AS call, 0 AS depth, 0 AS function, 0 AS start_ns, 9 AS end_ns,"
            f" 2 AS total_instructions, 2 AS self_instructions FROM range({threads})",
        )
        counted: Any = CountingConnection(connection)
        beside: Any = CountingConnection(connection.cursor())
        session = {"target": "app", "session_id": "many", "start_ns": 0, "end_ns": 9}
        assert b"".join(form(SessionRows(counted, beside, session)))
        return int(counted.asked + beside.asked)

    assert asked(50) == asked(1)


def test_rows_are_divided_by_the_segments_that_are_asked_for() -> None:
    rows = [(0, "a"), (2, "b"), (2, "c"), (3, "d"), (5, "e"), (5, "f")]
    assert [list(one) for one in by_segment(rows, [1, 2, 5, 7])] == [[], ["b", "c"], ["e", "f"], []]
    # What is left of one thread is not the next one's.
    assert [next(one, None) for one in by_segment(rows, [0, 2, 3, 5])] == ["a", "b", "d", "e"]
    assert [list(one) for one in by_segment(rows[:0], [0])] == [[]]


async def test_work_is_interrupted_until_it_has_ended() -> None:
    begun, interrupts = threading.Event(), threading.Semaphore(0)
    threads = ThreadPoolExecutor(1)

    def hard_of_hearing() -> int:
        begun.set()
        return sum(interrupts.acquire() for _ in range(3))

    waiting = asyncio.create_task(interruptible(threads, interrupts.release, hard_of_hearing))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await interruptible(threads, interrupts.release, lambda: 7) == 7


@pytest.mark.parametrize("table", ["", "functions", "losses"])
async def test_tables_as_files(decoded: Tables, tmp_path: Path, table: str) -> None:
    wanted = {"": 8, "functions": 4, "losses": 0}[table]
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.CSV, table))
    assert len(list(csv.DictReader(io.StringIO(data.decode())))) == wanted
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.PARQUET, table))
    read = pq.read_table(io.BytesIO(data))
    assert read.num_rows == wanted
    data, _ = await exported(decoded, tmp_path, ExportWish(SESSION, ExportFormat.JSON, table))
    rows = json.loads(data)
    assert len(rows) == wanted
    assert [row["name"] for row in rows] == (read["name"].to_pylist() if wanted else [])


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (ExportWish("unknown", ExportFormat.FOLDED), "SESSION_NOT_DECODED"),
        (ExportWish(SESSION, ExportFormat.CSV, "call"), "EXPORT_TABLE"),
        (ExportWish(SESSION, ExportFormat.FOLDED, "calls"), "EXPORT_TABLE"),
        (ExportWish(SESSION, ExportFormat.CSV, max_calls=1), "EXPORT_MAX_CALLS"),
        (ExportWish(SESSION, ExportFormat.FOLDED, max_calls=-1), "EXPORT_MAX_CALLS"),
        (ExportWish(SESSION, ExportFormat.CSV, max_depth=1), "EXPORT_MAX_DEPTH"),
        (ExportWish(SESSION, ExportFormat.FOLDED, max_depth=-1), "EXPORT_MAX_DEPTH"),
    ],
)
async def test_a_wish_that_cannot_be_is_told(decoded: Tables, tmp_path: Path, wish: ExportWish, reason: str) -> None:
    with pytest.raises(PermilleError) as error:
        await exported(decoded, tmp_path, wish)
    assert error.value.reason == reason
    assert error.value.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND)
    assert error.value.help


@st.composite
def threads(draw: st.DrawFn) -> list[Call]:
    """Calls as a decoder tells them: nested, in the order in which they began."""
    calls: list[Call] = []

    def fill(depth: int, start: int, end: int) -> int:
        at, instructions = start, 0
        while at < end and draw(st.booleans()) and len(calls) < 40:
            begun = draw(st.integers(at, end))
            ended = draw(st.integers(begun, end))
            number, own = len(calls), draw(st.integers(0, 9))
            calls.append(Call(depth, draw(st.integers(0, 3)), begun, ended, own))
            total = own + fill(depth + 1, begun, ended)
            calls[number] = calls[number]._replace(total_instructions=total)
            instructions += total
            at = ended
        return instructions

    fill(0, 0, 1000)
    return calls


@given(threads(), st.data())
def test_any_calls_nest(whole: list[Call], data: st.DataObject) -> None:
    calls = [call for call in whole if data.draw(st.integers(0, 5))]
    events = [{"type": "O" if e.begins else "C", "at": e.at_ns, "frame": e.function} for e in nested_events(calls)]
    assert require_nested(events, 0, 1000) == len(calls)


@given(threads(), st.integers(0, 40))
def test_a_call_tree_loses_nothing_of_the_longest_calls(whole: list[Call], most: int) -> None:
    kept = set(sorted(range(len(whole)), key=lambda at: whole[at].start_ns - whole[at].end_ns)[:most])
    nodes = [node for _, node in call_tree(call for at, call in enumerate(whole) if at in kept).stacks()]
    outermost = [call for at, call in enumerate(whole) if at in kept and call.depth == 0]
    assert sum(node.calls for node in nodes) == len(kept)
    assert all(node.self_instructions >= 0 and node.self_ns >= 0 for node in nodes)
    assert sum(node.self_instructions for node in nodes) == sum(call.total_instructions for call in outermost)
    assert sum(node.self_ns for node in nodes) == sum(call.end_ns - call.start_ns for call in outermost)
