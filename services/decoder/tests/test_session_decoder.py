"""From a stored session to rows: exact where everything is there."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute
import pytest
import zstandard
from elftools.elf.elffile import ELFFile
from permille.decoder.domain.archive import SessionArchive
from permille.decoder.domain.function_categories import read_categories
from permille.decoder.domain.function_numbers import FunctionKey
from permille.decoder.domain.part_decoder import PartTask
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_context import open_context
from permille.decoder.domain.workers import WorkerDied
from permille.decoder.service.store_tidying import StoreTidying
from permille.mesh.errors import InvalidArgument, PermilleError, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables
from permille.ptcore import Decoded, decode_threads, switch_warnings

from .decode_bench import Bench, StoreSession
from .held_object import HeldObject
from .small_program import FIRST_TSC, Program

pc: Any = pyarrow.compute

START_NS = 1_800_000_000_000_000_000


async def test_every_row_of_a_small_program(bench: Bench, store_session: StoreSession, program: Any) -> None:
    await store_session()
    decoded = await bench.decode()
    raw = 2 * len(program.packets())
    assert (decoded.instructions, decoded.calls, decoded.functions, decoded.raw_bytes) == (24, 8, 3, raw)
    assert decoded.lost_bytes == 0
    assert bench.progress[0] == (0, raw)
    assert bench.progress[-1] == (raw, raw)

    functions = {row["name"]: row for row in await bench.rows("functions")}
    assert {name: row["calls"] for name, row in functions.items()} == {"_start": 2, "outer": 2, "inner": 4}
    assert {name: row["self_instructions"] for name, row in functions.items()} == {"_start": 6, "outer": 6, "inner": 12}
    assert {name: row["total_instructions"] for name, row in functions.items()} == {
        "_start": 24,
        "outer": 18,
        "inner": 12,
    }
    # Where branches led: behind calls, to functions and over the `nop`; the recording's begin is no such place.
    assert {name: row["blocks"] for name, row in functions.items()} == {"_start": 1, "outer": 3, "inner": 2}
    assert functions["outer"]["build_id"] == program.build_id
    assert functions["outer"]["module"] == "/usr/bin/small"
    assert Path(functions["inner"]["file"]).name == "small.s"
    assert functions["inner"]["line"] > functions["outer"]["line"] > 0

    calls = [row for row in await bench.rows("calls") if row["segment"] == 1]
    assert [row["name"] for row in calls] == ["_start", "outer", "inner", "inner"]
    by_number = {row["call"]: row for row in calls}
    assert [row["parent"] for row in calls] == [-1, calls[0]["call"], calls[1]["call"], calls[1]["call"]]
    assert [row["depth"] - calls[0]["depth"] for row in calls] == [0, 1, 2, 2]
    assert [row["self_instructions"] for row in calls] == [3, 3, 3, 3]
    assert [row["total_instructions"] for row in calls] == [12, 9, 3, 3]
    assert {(row["pid"], row["tid"], row["core"]) for row in calls} == {(7, 71, -1)}
    for row in calls:
        assert START_NS <= row["start_ns"] <= row["end_ns"] <= START_NS + 2000
        parent = by_number.get(row["parent"], row)
        assert parent["start_ns"] <= row["start_ns"] <= row["end_ns"] <= parent["end_ns"]

    (session,) = await bench.rows("sessions")
    assert (session["instructions"], session["calls"], session["segments"], session["lost_bytes"]) == (24, 8, 2, 0)
    segments = await bench.rows("segments")
    assert [(row["thread"], row["instructions"], row["errors"]) for row in segments] == [("t0", 12, 0), ("t1", 12, 0)]
    numbers = {row["function"]: name for name, row in functions.items()}
    accesses = [row for row in await bench.rows("accesses") if row["segment"] == 1]
    # A call writes where it returns to, a return reads it.
    assert {(row["instruction_class"], row["width_bytes"]) for row in accesses} == {("stack", 8)}
    assert sorted((numbers[row["function"]], row["reads"], row["writes"]) for row in accesses) == [
        ("_start", 0, 1),
        ("inner", 2, 0),
        ("outer", 1, 2),
    ]
    assert await bench.rows("losses") == []
    assert sum(row["count"] for row in await bench.rows("edges") if row["kind"] == "call") == 6


async def test_builds_of_a_program_at_one_path_are_told_apart(
    bench: Bench, store: ObjectStore, store_session: StoreSession, program: Program
) -> None:
    other = "binaries/" + "0" * len(program.build_id)
    await store.put_stream(other, zstandard.compress(program.path.read_bytes()))
    replaced = program.mapping(epoch=2, tsc=FIRST_TSC, build_id="0000", binary=other)
    runs = [program.packets()] * 3
    await store_session(changes=[program.mapping(), replaced], images=[1, 2, 2], runs=runs)
    await bench.decode()
    told = sorted((row["build_id"], row["name"], row["module"], row["calls"]) for row in await bench.rows("functions"))
    counts = {"_start": 1, "inner": 2, "outer": 1}
    once = [("0000", name, "/usr/bin/small", 2 * count) for name, count in counts.items()]
    assert told == once + [(program.build_id, name, "/usr/bin/small", count) for name, count in counts.items()]
    numbers = {row["function"] for row in await bench.rows("functions")}
    assert {row["function"] for row in await bench.rows("calls")} == numbers
    assert len(numbers) == 6


async def test_blocks_are_those_of_all_threads_together(
    bench: Bench, store_session: StoreSession, program: Any, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    over, through = program.packets(), program.packets().replace(bytes([0b1110]), bytes([0b1010]), 1)
    assert over != through

    async def blocks(session_id: str, among: Bench, *runs: bytes) -> dict[str, int]:
        await store_session(session_id, runs=runs)
        await among.decode(session_id)
        return {row["name"]: row["blocks"] for row in await among.rows("functions", session_id)}

    assert await blocks("over", bench, over) == {"_start": 1, "outer": 3, "inner": 2}
    together = await blocks("both", bench, over, through)
    assert together == {"_start": 1, "outer": 3, "inner": 3}
    # The second call goes over the `nop`.
    assert await blocks("through", bench, through) == together
    assert await blocks("parts", bench, *[one + bytes(1 << 20) for one in (over, through, over, through)]) == together
    several = Bench(bench.store, pool, tmp_path / "several", threads=3)
    assert await blocks("threads", several, over, through) == together


async def test_a_block_is_the_same_wherever_its_binary_is_loaded(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    away = 1 << 32
    moved = replace(program, symbols={name: address + away for name, address in program.symbols.items()})
    maps = [program.mapping(address=program.address + bias) for bias in (0, away)]
    await store_session(changes=maps, runs=[program.packets(), moved.packets()])
    assert (await bench.decode()).instructions == 24
    functions = {row["name"]: row for row in await bench.rows("functions")}
    assert {name: row["blocks"] for name, row in functions.items()} == {"_start": 1, "outer": 3, "inner": 2}
    assert len({row["to_address"] for row in await bench.rows("edges") if row["to_address"]}) == 2 * 6


async def test_a_psb_within_a_block_makes_no_other_one(bench: Bench, store_session: StoreSession, program: Any) -> None:
    # Between two instructions of _start, where no branch leads.
    status = bytes.fromhex("0282") * 8 + bytes.fromhex("9901")
    at = b"\xdd" + (program.symbols["_start"] + 10).to_bytes(8, "little")
    packets = program.packets()
    divided = packets[:-1] + status + at + bytes.fromhex("0223") + packets[-1:]
    await store_session(runs=[divided])
    assert (await bench.decode()).instructions == 12
    functions = {row["name"]: row for row in await bench.rows("functions")}
    assert {name: row["blocks"] for name, row in functions.items()} == {"_start": 1, "outer": 3, "inner": 2}
    assert await bench.rows("losses") == []


async def test_functions_have_the_category_of_the_last_rule_that_fits(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], store_session: StoreSession, tmp_path: Path
) -> None:
    table = tmp_path / "categories.txt"
    table.write_text("# ours\nleaves  in*r\nouter-1  outer\nouter-2  outer @ small\nleaves  _start @ other\n")
    await store_session()
    bench = Bench(store, pool, tmp_path, categories=read_categories(table))
    await bench.decode()
    found = {row["name"]: row["category"] for row in await bench.rows("functions")}
    assert found == {"inner": "leaves", "outer": "outer-2", "_start": "loading"}


INLINING = """
static inline __attribute__((always_inline)) int innermost(volatile int *x) { *x += 3; return *x * 5; }
static inline __attribute__((always_inline)) int middle(volatile int *x) { *x -= 1; return innermost(x); }
void _start(void) {
    volatile int x = 1;
    x = middle(&x);
    __asm__ volatile("syscall");
    __builtin_unreachable();
}
"""


@pytest.fixture
def store_inlining(store_session: StoreSession, program: Any, tmp_path: Path) -> Callable[..., Awaitable[None]]:
    """Stores a session of a program with inlined functions, which is built with the given options too."""

    async def stored(*options: str) -> None:
        source, path = tmp_path / "inlining.c", tmp_path / "inlining"
        source.write_text(INLINING)
        options = (*options, "-g", "-O1", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=sha1")
        subprocess.run(["gcc", *options, "-o", str(path), str(source)], check=True, cwd=tmp_path)
        with path.open("rb") as file:
            elf = ELFFile(file)
            (code,) = (part for part in elf.iter_segments("PT_LOAD") if part["p_flags"] & 1)
            start = elf["e_entry"]
        change = {
            "epoch": 1,
            "tsc": 0,
            "event": "map",
            "address": code["p_vaddr"],
            "size_bytes": code["p_memsz"],
            "offset": code["p_offset"],
            "path": "/usr/bin/inlining",
            "build_id": program.build_id,
            "binary": f"binaries/{program.build_id}",
            "code_offset": 0,
        }
        run = program.packets()
        begin = run.index(program.symbols["_start"].to_bytes(8, "little"))
        # Up to the system call without a branch.
        run = run[:begin] + start.to_bytes(8, "little") + b"\x01"
        await store_session(binary=path, runs=[run, run], changes=[change])

    return stored


async def test_what_is_inlined_is_told_when_it_is_asked_for(
    store: ObjectStore,
    pool: SegmentPool[PartTask, bytes],
    store_inlining: Callable[..., Awaitable[None]],
    tmp_path: Path,
) -> None:
    await store_inlining()
    bench = Bench(store, pool, tmp_path, inlined=True)
    await bench.decode()
    (function,) = await bench.rows("functions")
    rows = [row for row in await bench.rows("inlined") if row["segment"] == 1]
    assert {(row["name"], row["chain"], row["depth"]) for row in rows} == {
        ("middle", "middle", 1),
        ("innermost", "middle > innermost", 2),
    }
    assert {row["function"] for row in rows} == {function["function"]}
    assert 0 < 2 * sum(row["instructions"] for row in rows) < function["self_instructions"]
    assert await bench.rows("losses") == []
    silent = Bench(store, pool, tmp_path / "silent")
    await silent.decode()
    assert await silent.rows("inlined") == []


async def test_debug_information_that_is_not_there_is_told_until_it_is(
    store: ObjectStore,
    pool: SegmentPool[PartTask, bytes],
    store_inlining: Callable[..., Awaitable[None]],
    tmp_path: Path,
) -> None:
    await store_inlining("-gsplit-dwarf")
    (split,) = tmp_path.glob("*.dwo")
    bench = Bench(store, pool, tmp_path, inlined=True)
    await bench.decode()
    assert await bench.rows("inlined") == []
    (note,) = await bench.rows("losses")
    assert note["reason"].startswith(
        f"/usr/bin/inlining: debug information refers to {split.resolve()}: it is not there"
    )
    assert str(bench.debug_folder) in note["reason"]
    bench.debug_folder.mkdir(exist_ok=True)
    split.rename(bench.debug_folder / split.name)
    await bench.decode()
    assert {row["name"] for row in await bench.rows("inlined")} == {"middle", "innermost"}
    assert await bench.rows("losses") == []


async def test_a_session_whose_paths_are_no_utf_8_is_decoded_as_any_other(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    """Newer recorders write such a name out."""
    await store_session(changes=[program.mapping(path=os.fsdecode(b"/usr/bin/latin-\xe9"))])
    assert (await bench.decode()).instructions == 24
    assert {row["module"] for row in await bench.rows("functions")} == {"/usr/bin/latin-\\udce9"}


def test_a_line_that_is_no_rule_is_refused_with_file_and_line(tmp_path: Path) -> None:
    table = tmp_path / "categories.txt"
    table.write_text("memory  mine\nMemory  malloc\n")
    with pytest.raises(InvalidArgument) as refused:
        read_categories(table)
    assert f'{table}, line 2: "Memory  malloc"' in refused.value.message
    table.write_bytes(b"memory  mine\n\nmemory  \xff\n")
    with pytest.raises(InvalidArgument, match="line 3: it is not UTF-8"):
        read_categories(table)
    with pytest.raises(InvalidArgument, match="No such file"):
        read_categories(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    for endless in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(InvalidArgument, match=f"{endless} is a device or a pipe"):
            read_categories(endless)


async def test_decoding_again_doubles_nothing(bench: Bench, store_session: StoreSession) -> None:
    await store_session()
    await store_session("s2")
    first = await bench.decode()
    await bench.decode("s2")
    before = {table: await bench.rows(table) for table in ("functions", "calls", "edges", "segments", "sessions")}
    assert await bench.decode() == first
    for table, rows in before.items():
        again = await bench.rows(table)
        for row in (*rows, *again):
            row.pop("decode_ms", None)
        assert sorted(map(str, again)) == sorted(map(str, rows))


async def test_what_tables_hold_of_a_decode_stays_whoever_takes_it_for_failed(
    bench: Bench, store_session: StoreSession
) -> None:
    await store_session()
    await bench.decode(decode_id="d1")
    before = {table: await bench.rows(table) for table in SCHEMAS}
    await bench.decoder.forget("s1", "d1")
    assert {table: await bench.rows(table) for table in SCHEMAS} == before


async def seen(bench: Bench) -> dict[str, int]:
    return {table: dataset.count_rows() for table, dataset in (await bench.tables.datasets()).items()}


@pytest.mark.parametrize("where", ["sessions", "segments"])
async def test_a_decode_that_fails_between_two_commits_is_not_seen_until_it_is_done_again(
    bench: Bench, store_session: StoreSession, tmp_path: Path, where: str
) -> None:
    await store_session()
    in_the_way = tmp_path / "store" / "tables" / where / "_delta_log"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("no folder")
    with pytest.raises(PermilleError):
        await bench.decode(decode_id="d1")
    in_the_way.unlink()
    await bench.decoder.forget("s1", "d1")
    assert len(await bench.rows("calls")) == 8
    assert set((await seen(bench)).values()) == {0}
    held = {file for table in SCHEMAS for file in await bench.tables.files(table)}
    assert {info.key async for info in bench.store.list("tables/") if "/part-" in info.key} == held
    await bench.decode(decode_id="d2")
    whole = await seen(bench)
    assert (whole["calls"], whole["sessions"]) == (8, 1)
    assert whole == {table: len(await bench.rows(table)) for table in SCHEMAS}


async def rows_of(bench: Bench) -> dict[str, list[str]]:
    """As queries see them."""
    found = await bench.tables.datasets()
    return {table: sorted(map(str, dataset.to_table().to_pylist())) for table, dataset in found.items()}


@pytest.mark.parametrize("where", ["sessions", "segments"])
async def test_a_decode_is_seen_until_the_next_one_of_its_session_is_whole(
    bench: Bench, store_session: StoreSession, tmp_path: Path, etcd: Etcd, where: str
) -> None:
    await store_session("s2")
    await bench.decode("s2")
    await store_session(binary=None)
    assert (await bench.decode(decode_id="d1")).lost_bytes
    before = await rows_of(bench)
    assert len(before["sessions"]) == 2 and before["losses"]
    await store_session()
    in_the_way, aside = tmp_path / "store" / "tables" / where / "_delta_log", tmp_path / "aside"
    in_the_way.rename(aside)
    in_the_way.write_text("no folder")
    with pytest.raises(PermilleError):
        await bench.decode(decode_id="d2")
    in_the_way.unlink()
    aside.rename(in_the_way)
    assert len(await bench.rows("calls")) == 8, "the next one's, as the table has them"
    assert await rows_of(bench) == before
    # Whoever takes the one that failed for over, or looks for files that nobody needs.
    await bench.decoder.forget("s1", "d2")
    lease = Lease(etcd, ttl_s=60)
    await lease.start()
    tidying = StoreTidying(bench.store, bench.tables, OperationStore(etcd, "decoder", lease=lease))
    for _ in range(2):
        await tidying.sweep()
    assert await rows_of(bench) == before
    await bench.decode(decode_id="d3")
    after = await rows_of(bench)
    assert after == {table: sorted(map(str, await all_rows(bench, table))) for table in SCHEMAS}
    assert len(after["calls"]) == 16 and not after["losses"]
    for _ in range(2):
        await tidying.sweep()
    assert await rows_of(bench) == after
    assert not [info.key async for info in bench.store.list("tables/") if "/part-d1-" in info.key]


async def all_rows(bench: Bench, table: str) -> list[dict[str, Any]]:
    return (await bench.tables.dataset(table)).to_table().to_pylist()


async def test_who_opens_the_tables_while_a_decode_takes_the_place_of_another_sees_one_of_them(
    bench: Bench, store_session: StoreSession
) -> None:
    await store_session(binary=None)
    await bench.decode(decode_id="d1")
    before = await rows_of(bench)
    await store_session()

    class Slow(Tables):
        """The other decode is there before the table of losses, of which it has none, is opened."""

        async def dataset(self, table: str) -> Any:
            if table == "losses":
                await bench.decode(decode_id="d2")
            return await super().dataset(table)

    found = await Slow(bench.store).datasets()
    seen_meanwhile = {table: sorted(map(str, dataset.to_table().to_pylist())) for table, dataset in found.items()}
    assert seen_meanwhile == before
    assert len((await rows_of(bench))["calls"]) == 8


async def test_commits_that_had_begun_when_another_failed_come_to_their_end(
    bench: Bench, store_session: StoreSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session()
    in_the_way = tmp_path / "store/tables/segments/_delta_log"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("no folder")
    go_on, over = threading.Event(), threading.Event()
    replace_files = Tables._replace_files

    def slowly(tables: Tables, table: str, *arguments: Any) -> None:
        if table == "calls":
            go_on.wait(60)
        try:
            replace_files(tables, table, *arguments)
        finally:
            if table == "calls":
                over.set()

    async def failed() -> None:
        with pytest.raises(PermilleError, match="segments"):
            await bench.decode(decode_id="d1")
        in_the_way.unlink()
        await bench.decoder.forget("s1", "d1")

    await Tables(bench.store).replace_session("calls", "s2", [])
    monkeypatch.setattr(Tables, "_replace_files", slowly)
    end = asyncio.create_task(failed())
    # One that does not wait for the other is over by then.
    await asyncio.wait({end}, timeout=3)
    go_on.set()
    await end
    assert await asyncio.to_thread(over.wait, 60)
    assert len(await bench.rows("calls")) == 8


async def test_a_decode_that_is_cancelled_while_it_commits_commits_all_of_it(
    bench: Bench, store_session: StoreSession, hold: Callable[[str], HeldObject]
) -> None:
    await store_session()
    # Looked for when the table that comes last is opened.
    held = hold("tables/sessions/_delta_log/_last_checkpoint")
    decode = asyncio.create_task(bench.decode(decode_id="d1"))
    await held.reached()
    decode.cancel()
    held.restore()
    held.close()
    await asyncio.wait({decode})
    assert decode.cancelled()
    assert len(await bench.rows("sessions")) == 1
    assert len(await bench.rows("calls")) == 8


async def test_callers_that_are_found_behind_a_batch_get_their_calls(
    bench: Bench, store_session: StoreSession, loop: tuple[Any, bytes, int], tmp_path: Path
) -> None:
    looping, packets, leaves = loop
    await store_session(program=looping, binary=looping.path, runs=[packets, packets])
    context = await open_context(await SessionArchive.open(bench.store, "s1"), bench.binaries, tmp_path)
    batches: list[int] = []
    told = context.decoder(7).decode(packets, [(0, 1)], lambda calls, *_: batches.append(len(calls["call"])))
    assert told.callers and len(batches) > 1 and sum(batches) == leaves + 3

    await bench.decode()
    table = (await bench.tables.session("calls", "s1")).to_table()
    for segment in (0, 1):
        rows = table.filter(pc.equal(table["segment"], segment))
        by_name = {name: rows.filter(pc.equal(rows["name"], name)) for name in ("_start", "middle", "loop", "leaf")}
        assert [found.num_rows for found in by_name.values()] == [1, 1, 1, leaves]
        caller = -1
        for depth, found in enumerate(by_name.values()):
            assert set(found["parent"].to_pylist()) == {caller}
            assert set(found["depth"].to_pylist()) == {depth}
            assert pc.min(found["call"]).as_py() > caller
            caller = pc.min(found["call"]).as_py()
        assert len(set(rows["call"].to_pylist())) == rows.num_rows


def told_of(decoded: Decoded) -> list[set[Any]]:
    totals: tuple[Any, ...] = (decoded.functions(), decoded.edges(), decoded.accesses())
    return [set(zip(*(memoryview(column) for column in columns.values()), strict=True)) for columns in totals]


async def test_a_stream_that_is_alone_is_shared_by_threads(
    bench: Bench, store_session: StoreSession, loop: tuple[Any, bytes, int], pool: Any, tmp_path: Path
) -> None:
    looping, _, _ = loop
    # From the loop on, again and again; padding makes it long enough to be divided.
    at = looping.symbols["loop"].to_bytes(8, "little")
    psb, turns, padding = bytes.fromhex("0282") * 8, bytes([0b11111110]) * 500, bytes(1 << 16)
    status = [psb + b"\x19" + (2000 + 100 * n).to_bytes(7, "little") + bytes.fromhex("9901") for n in range(40)]
    pieces = [one + b"\xdd" + at + bytes.fromhex("0223") + turns + padding for one in status[1:]]
    stream = status[0] + bytes.fromhex("0223") + b"\xd1" + at + turns + b"".join(pieces)
    await store_session(program=looping, binary=looping.path, runs=[stream])
    context = await open_context(await SessionArchive.open(bench.store, "s1"), bench.binaries, tmp_path)
    decoder, calls = context.decoder(7), {1: 0, 3: 0}
    memory = [decoder.memory_bytes]
    for threads in calls:
        told: list[int] = []
        decoder.decode(stream, [(0, 1)], lambda batch, *_, told=told: told.append(len(batch["call"])), threads=threads)
        calls[threads] = sum(told)
        memory.append(decoder.memory_bytes)
    assert calls[1] == calls[3] > 40 * 1500
    # Each of the threads has code of its own.
    assert memory[2] > 2 * memory[1] > memory[0]
    # So it is when it is the stream of a core on which nobody else ran.
    core, images = (stream, 0, [(0, 7, 70, 1, 0, 0)], True), context.images([7])
    one, three = (decode_threads([core], images, context.config, threads=threads)[0, 7, 70] for threads in calls)
    assert one.stats == three.stats == one.cores[0] == three.cores[0]
    assert one.stats["calls"] == calls[1]
    assert told_of(one) == told_of(three)

    await bench.decode()
    alone = {table: await bench.rows(table) for table in ("calls", "functions", "edges", "losses")}
    assert len(alone["calls"]) == calls[1]
    several = Bench(bench.store, pool, tmp_path / "several", threads=3)
    await several.decode()
    for table, rows in alone.items():
        assert sorted(map(str, await several.rows(table))) == sorted(map(str, rows)), table


async def test_calls_have_the_core_on_which_they_began(bench: Bench, store_session: StoreSession) -> None:
    switches = [(900, 3, 70, 1), (1400, 3, 70, 0), (1450, 1, 70, 1)]
    data = b"".join(struct.pack("<QIIII", tsc, cpu, 7, tid, operation) for tsc, cpu, tid, operation in switches)
    await store_session(switches=data)
    await bench.decode()
    calls = await bench.rows("calls")
    assert {row["core"] for row in calls if row["segment"] == 0} <= {3, 1}
    assert calls[0]["core"] == 3
    assert {row["core"] for row in calls if row["segment"] == 1} == {-1}


async def test_switches_that_contradict_each_other_are_no_doubt_about_packets_of_threads(
    bench: Bench, store_session: StoreSession, tmp_path: Path
) -> None:
    leaves_twice = struct.pack("<QIIII", 900, 3, 7, 70, 0) + struct.pack("<QIIII", 950, 3, 7, 70, 0)
    await store_session(switches=leaves_twice)
    context = await open_context(await SessionArchive.open(bench.store, "s1"), bench.binaries, tmp_path)
    assert switch_warnings(leaves_twice) and not context.notes


async def test_a_part_asks_what_is_absent_while_another_makes_an_image(
    bench: Bench, store_session: StoreSession, tmp_path: Path
) -> None:
    await store_session()
    context = await open_context(await SessionArchive.open(bench.store, "s1"), bench.binaries, tmp_path)

    class MadeMeanwhile:
        def absent(self) -> list[str]:
            context.image(7)
            return ["a file"]

    made: Any = MadeMeanwhile()
    context._images[0] = made
    assert len(context.absent()) == 1


async def test_code_that_no_file_backs(bench: Bench, store_session: StoreSession, program: Any) -> None:
    code = program.path.read_bytes()[program.offset : program.offset + program.size]
    change = program.mapping(event="code", offset=0, path="", build_id="", binary="", code_offset=5)
    await store_session(code=b"other" + code, changes=[change])
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (24, 0)
    for row in await bench.rows("functions"):
        assert row["symbol_status"].startswith("none")


def with_numbers(monkeypatch: pytest.MonkeyPatch, moved: dict[FunctionKey, int]) -> None:
    monkeypatch.setattr("permille.decoder.domain.session_merge.are_parted", lambda told: False)
    monkeypatch.setattr("permille.decoder.domain.session_merge.renumbered", lambda functions: moved)


async def test_functions_whose_numbers_meet_get_others(
    bench: Bench, store_session: StoreSession, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session(runs=[program.packets()] * 3)
    moved = {FunctionKey("/usr/bin/small", program.symbols["inner"], "inner"): 77}
    with_numbers(monkeypatch, moved)
    await bench.decode()
    functions = {row["name"]: row for row in await bench.rows("functions")}
    assert functions["inner"]["function"] == 77
    assert functions["inner"]["calls"] == 6
    assert len({row["function"] for row in functions.values()}) == 3
    for row in await bench.rows("calls"):
        assert row["function"] == functions[row["name"]]["function"]


async def test_a_worker_that_dies_while_numbers_are_changed_is_tried_again_later(
    bench: Bench,
    store_session: StoreSession,
    program: Any,
    pool: SegmentPool[PartTask, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store_session()
    moved = {FunctionKey("/usr/bin/small", program.symbols["inner"], "inner"): 77}
    run = pool.run

    async def dies(task: PartTask, **how: Any) -> bytes:
        if task.moved:
            raise WorkerDied
        return await run(task, **how)

    with monkeypatch.context() as meanwhile:
        with_numbers(meanwhile, moved)
        meanwhile.setattr(pool, "run", dies)
        with pytest.raises(Unavailable) as error:
            await bench.decode(decode_id="d1")
    assert (error.value.reason, "support-bundle" in error.value.help) == ("WORKER_DIED", True)
    assert (await bench.decode(decode_id="d1")).calls == 8


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_worker_that_has_another_store_is_told_from_a_session_that_was_deleted(
    bench: Bench,
    store_session: StoreSession,
    pool: SegmentPool[PartTask, bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    deleted: bool,
) -> None:
    await store_session()
    run = pool.run

    async def elsewhere(task: PartTask, **how: Any) -> bytes:
        if deleted:
            await bench.store.delete("raw/s1/manifest.json")
        return await run(replace(task, store_url=(tmp_path / "elsewhere").as_uri()), **how)

    monkeypatch.setattr(pool, "run", elsewhere)
    with pytest.raises(PermilleError) as error:
        await bench.decode()
    assert error.value.reason == ("SESSION_NOT_FOUND" if deleted else "WORKER_STORE")
    assert deleted or f"{tmp_path}/elsewhere" in error.value.message


async def test_two_decodes_of_one_session_at_once(
    bench: Bench, store_session: StoreSession, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await store_session()
    other = Bench(bench.store, pool, tmp_path / "other")
    await asyncio.gather(bench.decode(), other.decode())
    assert len(await bench.rows("calls")) == 8
    assert len(await bench.rows("sessions")) == 1
