"""Code that was written at run time has the names and the times that its process told."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import zstandard
from elftools.elf.elffile import ELFFile
from permille.decoder.domain.manifest import manifest_key
from permille.decoder.domain.part_decoder import PartTask
from permille.decoder.domain.segment_pool import SegmentPool
from permille.mesh.store import ObjectStore

from .decode_bench import Bench, StoreSession
from .small_program import FIRST_TSC, TICKS, Program
from .test_core_archive import GOLDEN, SESSION, decoded, rows, stored

# Linux: tools/perf/Documentation/jitdump-specification.txt; times are ticks (flag 1).
HEAD = struct.pack("<6I2Q", 0x4A695444, 1, 40, 62, 0, 7, 0, 1)


def loaded(tsc: int, address: int, name: str, code: bytes) -> bytes:
    body = struct.pack("<2I4Q", 7, 7, address, address, len(code), address) + name.encode() + b"\0" + code
    return struct.pack("<2IQ", 0, 16 + len(body), tsc) + body


async def told(store: ObjectStore, session_id: str, *files: tuple[str, bytes], pid: int = 7) -> None:
    """Adds what a process told to a session that is stored."""
    manifest = json.loads(await store.get(manifest_key(session_id)))
    manifest["jit"] = []
    for number, (kind, data) in enumerate(files):
        key = f"raw/{session_id}/jit-{number}.zst"
        await store.put_stream(key, zstandard.compress(data))
        sha256 = hashlib.sha256(data).hexdigest()
        manifest["jit"].append({"pid": pid, "kind": kind, "name": f"{kind}-{pid}", "key": key, "sha256": sha256})
    clock = {"tsc0": FIRST_TSC, "ns0": 0, "tsc1": FIRST_TSC + TICKS, "ns1": TICKS}
    await store.put_stream(manifest_key(session_id), json.dumps(manifest | {"monotonic": clock}).encode())


async def store_generated(store_session: StoreSession, program: Program) -> None:
    """The program as code that no file backs: exactly what ran."""
    code = program.path.read_bytes()[program.offset : program.offset + program.size]
    change = {"epoch": 1, "tsc": 900, "event": "code", "address": program.address, "size_bytes": len(code)}
    await store_session(binary=None, changes=[change | {"code_offset": 0}], code=code)


async def names(bench: Bench) -> dict[str, int]:
    """The functions with their calls."""
    return {row["name"]: row["calls"] for row in await bench.rows("functions")}


async def test_a_perf_map_and_a_jitdump_name_functions(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    await store_generated(store_session, program)
    await bench.decode()
    assert all("+0x" in name for name in await names(bench))
    start, outer, inner = (program.symbols[name] for name in ("_start", "outer", "inner"))
    perf_map = f"{start:x} {outer - start:x} js:start\n{outer:x} {inner - outer:x} js:outer\n{inner:x} 6 js:inner\n"
    await told(bench.store, "s1", ("perf-map", perf_map.encode()))
    decoded = await bench.decode()
    assert await names(bench) == {"js:start": 2, "js:outer": 2, "js:inner": 4}
    assert (decoded.instructions, decoded.lost_bytes) == (24, 0)
    # Which bytes ran the recorder tells, whatever the dump says.
    dump = HEAD + loaded(800, inner, "dumped:inner", b"\xcc" * 6)
    await told(bench.store, "s1", ("perf-map", perf_map.encode()), ("jitdump", dump), ("newer", b"?"))
    assert (await bench.decode()).instructions == 24
    assert await names(bench) == {"js:start": 2, "js:outer": 2, "dumped:inner": 4}
    assert await bench.rows("losses") == []


async def test_what_a_process_told_wrongly_costs_nothing_else(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    await store_generated(store_session, program)
    await told(bench.store, "s1", ("perf-map", b"\xff\0\n" * 99), ("jitdump", b"not one"), ("jitdump", HEAD))
    await bench.store.put_stream("raw/s1/jit-2.zst", b"damaged")
    assert (await bench.decode()).instructions == 24
    first, second = sorted(row["reason"] for row in await bench.rows("losses"))
    assert first.startswith("names of code that was written at run time are missing: raw/s1/jit-2.zst is damaged")
    assert second.startswith("process 7: jitdump-7: ")


def text_of_golden(folder: Path) -> tuple[int, bytes]:
    """Address and bytes of the code of the program that cores recorded."""
    (binary,) = (GOLDEN / "binaries").iterdir()
    path = folder / "program"
    path.write_bytes(zstandard.ZstdDecompressor().decompressobj().decompress(binary.read_bytes()))
    with path.open("rb") as file:
        elf = ELFFile(file)
        assert elf.header["e_type"] == "ET_EXEC"
        (part,) = (part for part in elf.iter_segments("PT_LOAD") if part["p_flags"] & 1)
        return part["p_vaddr"], part.data()


def recorded_pid() -> int:
    (pid,) = manifest_of_golden()["target"]["pids"]
    return int(pid)


def manifest_of_golden() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((GOLDEN / manifest_key(SESSION)).read_text())
    return manifest


async def test_on_cores_the_time_says_which_function_ran(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await stored(store)
    before = await decoded(store, pool, tmp_path)
    totals = {row["name"]: row for row in await rows(store, "functions")}
    work = max(totals.values(), key=lambda row: row["calls"])
    base, text = text_of_golden(tmp_path)
    code = text[work["address"] - base :][: work["size_bytes"]]
    clock = manifest_of_golden()["clock"]
    middle = (clock["tsc0"] + clock["tsc1"]) // 2
    dump = HEAD + loaded(middle, work["address"], "jit:work", code)
    await told(store, SESSION, ("jitdump", dump), pid=recorded_pid())
    after = await decoded(store, pool, tmp_path)
    assert (after.instructions, after.lost_bytes) == (before.instructions, before.lost_bytes)
    calls = {row["name"]: row["calls"] for row in await rows(store, "functions")}
    assert 0 < calls["jit:work"] < work["calls"]
    # One that is under way then is of both.
    assert 0 <= calls[work["name"]] + calls["jit:work"] - work["calls"] <= 1


async def test_of_a_function_that_was_patched_since_the_jitdump_memory_tells(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await stored(store)
    before = await decoded(store, pool, tmp_path)
    work = max(await rows(store, "functions"), key=lambda row: row["calls"])
    base, text = text_of_golden(tmp_path)
    change = {"epoch": 0, "tsc": 0, "event": "code", "address": base, "size_bytes": len(text), "code_offset": 0}
    pid = recorded_pid()
    maps = json.dumps({"version": 1, "processes": [{"pid": pid, "changes": [change]}]}).encode()
    await stored(store, maps=maps)
    manifest = json.loads(await store.get(manifest_key(SESSION)))
    manifest["code"] |= {"size_bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    await store.put_stream(manifest["code"]["key"], zstandard.compress(text))
    await store.put_stream(manifest_key(SESSION), json.dumps(manifest).encode())
    patched = text[work["address"] - base :][: work["size_bytes"]]
    # Its JE was a JMP.
    unpatched = patched.replace(b"\x74\x0c", b"\xeb\x0c")
    assert unpatched != patched
    await told(store, SESSION, ("jitdump", HEAD + loaded(1, work["address"], "jit:work", unpatched)), pid=pid)
    after = await decoded(store, pool, tmp_path)
    calls = {row["name"]: row["calls"] for row in await rows(store, "functions")}
    assert (after.instructions, calls["jit:work"]) == (before.instructions, work["calls"])
