"""A decoded session in real tables and a stored one that is still to be decoded, small enough to know every row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.service.store_tidying import StoreTidying
from permille.mesh.etcd import Etcd
from permille.mesh.lease import Lease
from permille.mesh.operations import OperationStore
from permille.mesh.store import ObjectStore, open_store
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables

from .decode_bench import Bench
from .held_object import HeldObject
from .small_program import CALL_BYTES, FIRST_TSC, LOOP_SOURCE, SOURCE, TICKS, Program, built, tsc

START_NS = 1_800_000_000_000_000_000
SESSION = "small"
# Per thread: depth, function, start, end (ns after the start of the session), instructions of its own.
CALLS = {
    0: [
        (0, 0, 0, 1000, 10),
        (1, 1, 100, 400, 20),
        (2, 2, 150, 250, 5),
        (2, 2, 260, 260, 1),
        (1, 1, 400, 900, 30),
        (2, 2, 500, 600, 5),
        (0, 3, 1000, 1500, 7),
    ],
    1: [(0, 1, 50, 60, 3)],
}
FUNCTIONS = [
    ("main", "/usr/bin/app", "app.c", 3),
    ("std::map<int, char; long>::find(int)", "/usr/bin/app", "app.cc", 40),
    ("0x7f0000001234", "/usr/lib/libx.so", "", 0),
    ("strlen", "/usr/lib/libc.so.6", "", 0),
]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


@pytest.fixture
def new_row() -> Callable[..., dict[str, Any]]:
    """A row of a table with the values given and zeros."""

    def row(table: str, **values: object) -> dict[str, object]:
        empty = {"string": "", "bool": False, "date32[day]": date(2026, 11, 21)}
        return {field.name: empty.get(str(field.type), 0) for field in SCHEMAS[table]} | values

    return row


def below(calls: Sequence[tuple[int, ...]], number: int) -> Iterator[tuple[int, ...]]:
    """What one of the calls led to."""
    return takewhile(lambda call: call[0] > calls[number][0], calls[number + 1 :])


@pytest.fixture
async def decoded(store: ObjectStore, new_row: Callable[..., dict[str, Any]]) -> Tables:
    """Tables with the session SESSION, and another one that must not be seen."""
    tables = Tables(store)
    for session_id in (SESSION, "other"):
        rows: dict[str, list[dict[str, object]]] = {name: [] for name in SCHEMAS}
        rows["sessions"].append(
            new_row(
                "sessions",
                session=f"nodes/n/sessions/{session_id}",
                target="app",
                start_ns=START_NS,
                end_ns=START_NS + 2000,
            )
        )
        for number, (name, module, file, line) in enumerate(FUNCTIONS):
            values = {"name": name, "module": module, "file": file, "line": line, "address": -1 - number}
            rows["functions"].append(new_row("functions", function=number, **values))
        for segment, calls in CALLS.items():
            rows["segments"].append(new_row("segments", segment=segment, pid=7, tid=70 + segment, thread=f"t{segment}"))
            for call, (depth, function, start, end, instructions) in enumerate(calls):
                rows["calls"].append(
                    new_row(
                        "calls",
                        segment=segment,
                        call=call,
                        depth=depth,
                        function=function,
                        name=FUNCTIONS[function][0],
                        start_ns=START_NS + start,
                        end_ns=START_NS + end,
                        self_instructions=instructions,
                        total_instructions=instructions + sum(one[4] for one in below(calls, call)),
                    )
                )
        for name, listed in rows.items():
            batch = pa.RecordBatch.from_pylist(
                [row | {"session_id": session_id} for row in listed], schema=SCHEMAS[name]
            )
            await tables.replace_session(name, session_id, [batch])
    return tables


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return built(tmp_path_factory.mktemp("program"), SOURCE)


@pytest.fixture(scope="session")
def loop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, bytes, int]:
    """A program, packets from the middle of it on, and how often the innermost function was called there."""
    program = built(tmp_path_factory.mktemp("loop"), LOOP_SOURCE)
    # Three returns and branches a byte. Times now and then: a call is over when its time is known.
    turns, parts = 100_000, 20
    packets = [bytes.fromhex("0282") * 8, tsc(FIRST_TSC), bytes.fromhex("9901 0223")]
    packets.append(b"\xd1" + program.symbols["loop"].to_bytes(8, "little"))
    for part in range(parts):
        packets += [bytes([0b11111110]) * (turns // parts), tsc(FIRST_TSC + 90 * (part + 1))]
    packets.append(bytes([0b1100]))
    for caller in ("middle", "_start"):
        packets.append(b"\xcd" + (program.symbols[caller] + CALL_BYTES).to_bytes(8, "little"))
    packets += [tsc(FIRST_TSC + TICKS), b"\x01"]
    return program, b"".join(packets), 3 * turns + 1


@pytest.fixture
def store_session(store: ObjectStore, program: Program) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Stores a session of some runs of the program, as a controller does; returns the manifest."""

    async def put(
        session_id: str = "s1",
        *,
        binary: Path | None = program.path,
        runs: Sequence[bytes] = (program.packets(), program.packets()),
        switches: bytes = b"",
        changes: Sequence[dict[str, Any]] | None = None,
        images: Sequence[int] = (),
        code: bytes = b"",
        program: Program = program,
        **manifest_changes: Any,
    ) -> dict[str, Any]:
        key = f"binaries/{program.build_id}" if binary else ""
        if binary:
            await store.put_stream(key, zstandard.compress(binary.read_bytes()))
        listed = [program.mapping(binary=key)] if changes is None else list(changes)
        process = {"pid": 7, "comm": "small", "executable": "/usr/bin/small", "changes": listed}
        maps = json.dumps({"version": 1, "processes": [process]}).encode()
        files = {"maps.json": maps, "switches.bin": switches, "code.bin.zst": zstandard.compress(code)}
        segments = []
        for index, run in enumerate(runs):
            files[f"segment-{index}.pt.zst"] = zstandard.compress(run)
            segments.append(
                {
                    "index": index,
                    "key": f"raw/{session_id}/segment-{index}.pt.zst",
                    "kind": "thread",
                    "pid": 7,
                    "tid": 70 + index,
                    "thread_name": f"t{index}",
                    "size_bytes": len(run),
                    "stored_bytes": len(files[f"segment-{index}.pt.zst"]),
                    "stored_sha256": sha256(files[f"segment-{index}.pt.zst"]),
                    "sha256": sha256(run),
                    "buffer_bytes": 1 << 20,
                    "full": False,
                    "lost_bytes": 0,
                    "lost_blocks": 0,
                    "epochs": [[0, images[index] if images else 1]],
                    "first_tsc": FIRST_TSC,
                    "last_tsc": FIRST_TSC + TICKS,
                }
            )
        manifest = {
            "version": 1,
            "session": f"nodes/n/sessions/{session_id}",
            "session_id": session_id,
            "node": "n",
            "backend": "vpt",
            "purpose": "ON_DEMAND",
            "request_id": "r",
            "target": {"pids": [7], "name": "small", "command_line": ["small"]},
            "start_ns": START_NS,
            "end_ns": START_NS + TICKS,
            "period_ms": 1,
            "stop_reason": "PERIOD",
            # A tick is a nanosecond.
            "clock": {"tsc0": FIRST_TSC, "ns0": START_NS, "tsc1": FIRST_TSC + TICKS, "ns1": START_NS + TICKS},
            "pt": {
                "family": 6,
                "model": 94,
                "stepping": 3,
                "psb_freq": 3,
                "mtc_freq": 3,
                "tsc": True,
                "mtc": True,
                "cyc": True,
                "return_compression": True,
                "tsc_ctc_ratio": [2, 1],
                "nominal_ratio": 30,
            },
            "segments": segments,
            "switches": {
                "key": f"raw/{session_id}/switches.bin",
                "count": len(switches) // 24,
                "sha256": sha256(switches),
                "dropped": 0,
                "unavailable": "",
            },
            "maps": {"key": f"raw/{session_id}/maps.json", "sha256": sha256(maps)},
            "code": {"key": f"raw/{session_id}/code.bin.zst", "size_bytes": len(code), "sha256": sha256(code)},
        } | manifest_changes
        for name, data in files.items():
            await store.put_stream(f"raw/{session_id}/{name}", data)
        await store.put_stream(f"raw/{session_id}/manifest.json", json.dumps(manifest).encode())
        return manifest

    return put


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def pool() -> Iterator[SegmentPool[PartTask, bytes]]:
    pool = SegmentPool(decode_part, LocalWorkers(2))
    yield pool
    pool.close()


@pytest.fixture
async def bench(store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path) -> AsyncIterator[Bench]:
    yield Bench(store, pool, tmp_path)


@pytest.fixture
def hold(store: ObjectStore) -> Iterator[Callable[[str], HeldObject]]:
    """Makes the reader of the object with this key wait."""
    held: list[HeldObject] = []

    def begin(key: str) -> HeldObject:
        held.append(HeldObject(store, key))
        return held[-1]

    yield begin
    for one in held:
        one.close()


@pytest.fixture
async def operations(etcd: Etcd) -> OperationStore:
    lease = Lease(etcd, ttl_s=60)
    await lease.start()
    return OperationStore(etcd, "decoder", lease=lease)


@pytest.fixture
def tidying(bench: Bench, operations: OperationStore) -> StoreTidying:
    return StoreTidying(bench.store, bench.tables, operations)
