"""From a stored session to rows: exact where everything is there, counted losses where something is not."""

from __future__ import annotations

import asyncio
import importlib
import secrets
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.compute
import pytest
from elftools.elf.elffile import ELFFile
from permille.decoder.domain.archive import SessionArchive
from permille.decoder.domain.binary_repository import BinaryRepository
from permille.decoder.domain.function_categories import read_categories
from permille.decoder.domain.function_numbers import FunctionKey
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_context import open_context
from permille.decoder.domain.session_decoder import DecodedSession, SessionDecoder
from permille.mesh.errors import Code, InvalidArgument, PermilleError, Unavailable
from permille.mesh.store import ObjectStore
from permille.mesh.tables import Tables
from permille.ptcore import Categories

pc: Any = pyarrow.compute

START_NS = 1_800_000_000_000_000_000
StoreSession = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def pool() -> Iterator[SegmentPool[PartTask, bytes]]:
    pool = SegmentPool(decode_part, LocalWorkers(2))
    yield pool
    pool.close()


class Bench:
    """A decoder on a store, and its tables."""

    def __init__(
        self,
        store: ObjectStore,
        pool: SegmentPool[PartTask, bytes],
        folder: Path,
        *,
        categories: Categories | None = None,
        inlined: bool = False,
        threads: int = 1,
    ) -> None:
        self.store = store
        self.tables = Tables(store)
        self.debug_folder = folder / "debug"
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        self.binaries = BinaryRepository(store, folder / "binaries", debug_folder=self.debug_folder)
        self.decoder = SessionDecoder(
            store,
            self.tables,
            pool,
            folder=scratch,
            workers_folder=str(folder / "worker"),
            debug_folder=self.debug_folder,
            categories=categories,
            inlined=inlined,
            threads=threads,
        )
        self.progress: list[tuple[int, int]] = []

    async def decode(self, session_id: str = "s1", decode_id: str = "") -> DecodedSession:
        async def progress(done: int, total: int) -> None:
            self.progress.append((done, total))

        decode_id = decode_id or secrets.token_hex(4)
        decoded = await self.decoder.decode(session_id, decode_id, progress)
        assert [info.key async for info in self.store.list(f"decodes/{decode_id}/")] == []
        return decoded

    async def rows(self, table: str, session_id: str = "s1") -> list[dict[str, Any]]:
        found = (await self.tables.session(table, session_id)).to_table().to_pylist()
        order = {"calls": ("segment", "call"), "functions": ("function",), "segments": ("segment",)}.get(table, ())
        return sorted(found, key=lambda row: tuple(row[name] for name in order))


@pytest.fixture
async def bench(store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path) -> AsyncIterator[Bench]:
    yield Bench(store, pool, tmp_path)


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
    maps = [
        {
            "epoch": 1,
            "tsc": 0,
            "event": "map",
            "address": program.address + bias,
            "size_bytes": program.size,
            "offset": program.offset,
            "path": "/usr/bin/small",
            "build_id": program.build_id,
            "binary": f"binaries/{program.build_id}",
            "code_offset": 0,
        }
        for bias in (0, away)
    ]
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


async def test_what_is_inlined_is_told_when_it_is_asked_for(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    source, path = tmp_path / "inlining.c", tmp_path / "inlining"
    source.write_text(INLINING)
    options = ["-g", "-O1", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=sha1"]
    subprocess.run(["gcc", *options, "-o", str(path), str(source)], check=True)
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
    silent = Bench(store, pool, tmp_path / "silent")
    await silent.decode()
    assert await silent.rows("inlined") == []


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


async def test_code_that_no_file_backs(bench: Bench, store_session: StoreSession, program: Any) -> None:
    code = program.path.read_bytes()[program.offset : program.offset + program.size]
    change = {
        "epoch": 1,
        "tsc": 0,
        "event": "code",
        "address": program.address,
        "size_bytes": len(code),
        "offset": 0,
        "path": "",
        "build_id": "",
        "binary": "",
        "code_offset": 5,
    }
    await store_session(code=b"other" + code, changes=[change])
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (24, 0)
    for row in await bench.rows("functions"):
        assert row["symbol_status"].startswith("none")


@pytest.mark.parametrize("how", ["changed", "cut off", "missing", "other content"])
async def test_a_damaged_segment_is_a_loss_and_the_rest_is_decoded(
    bench: Bench, store_session: StoreSession, program: Any, how: str
) -> None:
    manifest = await store_session()
    key = manifest["segments"][0]["key"]
    path = Path(urlsplit(bench.store.url).path) / key
    if how == "changed":
        path.write_bytes(bytes(len(path.read_bytes())))
    elif how == "cut off":
        await bench.store.put_stream(key, path.read_bytes()[:-6])
    elif how == "missing":
        await bench.store.delete(key)
    else:
        await bench.store.put_stream(key, (path.parent / "segment-1.pt.zst").read_bytes()[:0] + path.read_bytes()[::-1])
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.calls, decoded.lost_bytes) == (12, 4, len(program.packets()))
    (loss,) = await bench.rows("losses")
    assert (loss["segment"], loss["size_bytes"]) == (0, len(program.packets()))
    assert key in loss["reason"]
    assert loss["knob"]
    segments = await bench.rows("segments")
    assert [(row["errors"], row["lost_bytes"]) for row in segments] == [(1, len(program.packets())), (0, 0)]


async def test_garbage_within_a_segment_loses_only_that(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    garbage = b"\x02\xffgarbage that is no packet" * 3
    await store_session(runs=[program.packets() + garbage + program.packets()])
    decoded = await bench.decode()
    assert decoded.instructions == 24
    losses = await bench.rows("losses")
    assert 0 < sum(row["size_bytes"] for row in losses) == decoded.lost_bytes <= len(garbage)
    assert losses[0]["stream_offset"] == len(program.packets())
    assert all(row["knob"] for row in losses)


async def test_without_mappings_all_is_lost_and_told(bench: Bench, store_session: StoreSession, program: Any) -> None:
    manifest = await store_session()
    await bench.store.put_stream(manifest["maps"]["key"], b"{}")
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (0, 2 * len(program.packets()))
    assert {row["segment"] for row in await bench.rows("losses")} == {0, 1}


async def test_without_switch_records_only_the_cores_are_unknown(bench: Bench, store_session: StoreSession) -> None:
    manifest = await store_session()
    await bench.store.delete(manifest["switches"]["key"])
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (24, 0)
    (loss,) = await bench.rows("losses")
    assert "cores" in loss["reason"]


@pytest.mark.parametrize("how", ["never stored", "deleted", "damaged", "no ELF"])
async def test_without_the_binary_frames_and_losses_say_so(
    bench: Bench, store_session: StoreSession, program: Any, tmp_path: Path, how: str
) -> None:
    if how == "no ELF":
        (tmp_path / "text").write_text("no program")
        await store_session(binary=tmp_path / "text")
    else:
        await store_session(binary=None if how == "never stored" else program.path)
    key = f"binaries/{program.build_id}"
    if how == "deleted":
        await bench.store.delete(key)
    if how == "damaged":
        (Path(urlsplit(bench.store.url).path) / key).write_bytes(b"x")
    decoded = await bench.decode()
    assert decoded.instructions == 0
    losses = await bench.rows("losses")
    assert losses
    told = " ".join(row["reason"] for row in losses)
    assert {"never stored": "could not be read", "deleted": "repository", "damaged": "damaged", "no ELF": "read"}[
        how
    ] in told
    assert all(row["knob"] for row in losses)


async def test_a_binary_that_comes_later_is_there_for_the_next_decode(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    await store_session()
    key = f"binaries/{program.build_id}"
    binary = await bench.store.get(key)
    await bench.store.delete(key)
    assert (await bench.decode()).instructions == 0
    await bench.store.put_stream(key, binary)
    # Also where a worker kept what it knew of the session.
    for _ in range(3):
        assert (await bench.decode()).instructions == 24


async def test_a_stripped_binary_has_addresses_and_says_why(
    bench: Bench, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    stripped, _ = split(program.path, tmp_path)
    await store_session(binary=stripped)
    decoded = await bench.decode()
    assert decoded.instructions == 24
    functions = await bench.rows("functions")
    for row in functions:
        assert row["symbol_status"].startswith("none: ")
        assert "0x" in row["name"]
    assert sum(row["blocks"] for row in functions) == 6


@pytest.mark.parametrize("where", ["uploaded", "by build id", "by debug link"])
async def test_a_separate_debug_file_gives_names_and_lines(
    bench: Bench, store_session: StoreSession, program: Any, tmp_path: Path, where: str
) -> None:
    stripped, debug = split(program.path, tmp_path)
    await store_session(binary=stripped)
    if where == "uploaded":
        added = await bench.binaries.add(debug, debug=True)
        assert added.key == f"binaries/{program.build_id}.debug"
    else:
        to = {
            "by build id": bench.debug_folder / ".build-id" / program.build_id[:2] / f"{program.build_id[2:]}.debug",
            "by debug link": bench.debug_folder / "usr/bin" / debug.name,
        }[where]
        to.parent.mkdir(parents=True)
        to.write_bytes(debug.read_bytes())
    await bench.decode()
    functions = await bench.rows("functions")
    assert {row["name"] for row in functions} == {"_start", "outer", "inner"}
    assert {Path(row["file"]).name for row in functions} == {"small.s"}


async def test_what_found_no_room_is_a_loss_with_the_buffer_that_holds_it(
    bench: Bench, store_session: StoreSession
) -> None:
    manifest = await store_session()
    segments = manifest["segments"]
    segments[0] |= {"full": True, "lost_bytes": segments[0]["size_bytes"] * 3, "lost_blocks": 99}
    await store_session(segments=segments)
    decoded = await bench.decode()
    assert decoded.lost_bytes == segments[0]["lost_bytes"]
    (loss,) = await bench.rows("losses")
    assert loss["size_bytes"] == segments[0]["lost_bytes"]
    assert "99 blocks" in loss["reason"]
    # 2 MiB held 2 of 5 parts.
    assert "--buffer 8MiB" in loss["knob"]


async def test_a_session_that_is_not_there_is_told(bench: Bench) -> None:
    with pytest.raises(PermilleError, match="nothing") as error:
        await bench.decode("nothing")
    assert (error.value.code, error.value.reason) == (Code.NOT_FOUND, "SESSION_NOT_FOUND")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "session": 3}'])
async def test_a_damaged_manifest_is_told(bench: Bench, text: bytes) -> None:
    await bench.store.put_stream("raw/s1/manifest.json", text)
    with pytest.raises(PermilleError, match=r"raw/s1/manifest\.json") as error:
        await bench.decode()
    assert (error.value.code, error.value.reason) == (Code.DATA_LOSS, "MANIFEST_DAMAGED")


POISON = """
import os
from permille.decoder.domain.part_decoder import decode_part

def decode(task):
    if 13 in task.segments:
        os.kill(os.getpid(), 9)
    return decode_part(task)
"""


async def test_a_segment_that_kills_its_worker_is_a_loss_of_itself_alone(
    store: ObjectStore, store_session: StoreSession, program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "poison_of_one.py").write_text(POISON)
    monkeypatch.syspath_prepend(str(tmp_path))
    pool: SegmentPool[PartTask, bytes] = SegmentPool(importlib.import_module("poison_of_one").decode, LocalWorkers(2))
    try:
        await store_session(runs=[program.packets()] * 20)
        bench = Bench(store, pool, tmp_path)
        decoded = await bench.decode()
    finally:
        pool.close()
    assert (decoded.instructions, decoded.calls, decoded.lost_bytes) == (19 * 12, 19 * 4, len(program.packets()))
    (loss,) = await bench.rows("losses")
    assert (loss["segment"], loss["size_bytes"]) == (13, len(program.packets()))
    assert "worker process died" in loss["reason"]
    assert {row["segment"] for row in await bench.rows("calls")} == set(range(20)) - {13}
    assert [row["errors"] for row in await bench.rows("segments")] == [int(index == 13) for index in range(20)]


class Interrupted(SegmentPool[PartTask, bytes]):
    """Counts parts, and after `most` of them the store is away."""

    most = 1000
    parts = 0

    async def run(self, task: PartTask, *, priority: int = 0, alone: bool = False) -> bytes:
        self.parts += 1
        if self.parts > self.most:
            raise Unavailable("the store is away", reason="STORE_UNAVAILABLE", help="wait")
        return await super().run(task, priority=priority, alone=alone)


async def test_a_decode_that_died_goes_on_where_it_was(
    store: ObjectStore, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    await store_session(runs=[program.packets() * 5000] * 6)
    pool = Interrupted(decode_part, LocalWorkers(1))
    bench = Bench(store, pool, tmp_path)
    try:
        pool.most = 3
        with pytest.raises(Unavailable):
            await bench.decode(decode_id="operations/d1")
        assert [info.key async for info in store.list("tables/sessions/")] == []
        records = [info.key async for info in store.list("decodes/d1/") if info.key.endswith(".arrow")]
        assert 0 < len(records) <= 3
        pool.most, pool.parts, bench.progress = 1000, 0, []
        decoded = await bench.decode(decode_id="operations/d1")
        assert pool.parts == 6 - len(records)
        assert bench.progress[0][0] == len(records) * 5000 * len(program.packets())
        assert (decoded.instructions, decoded.calls) == (6 * 5000 * 12, 6 * 5000 * 4)
        assert len(await bench.rows("calls")) == 6 * 5000 * 4
        # What another recording left under this name is not taken for this one's.
        pool.most, pool.parts = 3, 0
        with pytest.raises(Unavailable):
            await bench.decode(decode_id="operations/d2")
        await store_session(runs=[program.packets()] * 6)
        pool.most = 1000
        assert (await bench.decode(decode_id="operations/d2")).instructions == 6 * 12
    finally:
        pool.close()
    files = [info.key async for info in store.list("tables/calls/") if "/part-" in info.key]
    assert len([key for key in files if "/part-d2-" in key]) == 1


async def test_what_a_decode_without_a_result_left_is_removed(
    store: ObjectStore, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    await store_session(runs=[program.packets() * 5000] * 3)
    pool = Interrupted(decode_part, LocalWorkers(1))
    pool.most = 2
    bench = Bench(store, pool, tmp_path)
    try:
        with pytest.raises(Unavailable):
            await bench.decode(decode_id="operations/d1")
        await bench.decoder.forget("s1", "operations/d1")
    finally:
        pool.close()
    assert [info.key async for info in store.list("decodes/")] == []
    assert [info.key async for info in store.list("tables/") if "/part-" in info.key] == []


async def test_functions_whose_numbers_meet_get_others(
    bench: Bench, store_session: StoreSession, program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_session(runs=[program.packets()] * 3)
    moved = {FunctionKey("/usr/bin/small", program.symbols["inner"], "inner"): 77}
    monkeypatch.setattr("permille.decoder.domain.session_merge.renumbered", lambda numbers: moved)
    await bench.decode()
    functions = {row["name"]: row for row in await bench.rows("functions")}
    assert functions["inner"]["function"] == 77
    assert functions["inner"]["calls"] == 6
    assert len({row["function"] for row in functions.values()}) == 3
    for row in await bench.rows("calls"):
        assert row["function"] == functions[row["name"]]["function"]


async def test_two_decodes_of_one_session_at_once(
    bench: Bench, store_session: StoreSession, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await store_session()
    other = Bench(bench.store, pool, tmp_path / "other")
    await asyncio.gather(bench.decode(), other.decode())
    assert len(await bench.rows("calls")) == 8
    assert len(await bench.rows("sessions")) == 1


def split(path: Path, folder: Path) -> tuple[Path, Path]:
    """The binary without symbols, linked to its debug file, and that file."""
    debug, stripped = folder / "small.debug", folder / "small.stripped"
    subprocess.run(["objcopy", "--only-keep-debug", str(path), str(debug)], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", str(path), str(stripped)], check=True)
    return stripped, debug
