"""The archive of two cores, recorded with the kernel module in QEMU whose plugin was the trace unit.

`core_session` is kmod/qemu/two_threads.c for 60 ms on two virtual CPUs (kmod/qemu/record_in_guest.py). The unit's own
log, which has no part in the archive, says how many instructions of the program ran while it was traced: 1,108.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.manifest import Clock, manifest_key
from permille.decoder.domain.part_decoder import PartTask, decode_part
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_decoder import DecodedSession, SessionDecoder
from permille.decoder.domain.session_rows import open_rows
from permille.mesh.store import ObjectStore
from permille.mesh.table_schemas import SCHEMAS
from permille.mesh.tables import Tables
from permille.ptcore import Capture
from permille.ptcore import packets as packets_of

GOLDEN = Path(__file__).with_name("core_session")
SESSION = "two-threads"
INSTRUCTIONS = 1108
RECORD = 24
WRAP = 1 << 56
# The second thread comes from core 0 to core 1.
CHANGED_TSC = 1051228122922
PSB = b"\x02\x82" * 8


@pytest.fixture
def pool() -> Iterator[SegmentPool[PartTask, bytes]]:
    pool = SegmentPool(decode_part, LocalWorkers(1))
    yield pool
    pool.close()


async def stored(store: ObjectStore, of_core: dict[int, dict[str, Any]] | None = None, **changed: bytes) -> None:
    """Stores the archive; `changed`: other contents, by the stem of the file, of which the manifest tells.

    `of_core`: what the manifest says else of a core's stream.
    """
    manifest = json.loads((GOLDEN / manifest_key(SESSION)).read_text())
    for segment in manifest["segments"]:
        segment.update((of_core or {}).get(segment["core"], {}))
    for file in sorted(GOLDEN.rglob("*")):
        if file.is_file() and file.name != "manifest.json":
            data = changed.get(file.stem, file.read_bytes())
            await store.put_stream(str(file.relative_to(GOLDEN)), data)
    for name, data in changed.items():
        manifest[name]["sha256"] = hashlib.sha256(data).hexdigest()
    await store.put_stream(manifest_key(SESSION), json.dumps(manifest).encode())


async def decoded(store: ObjectStore, pool: SegmentPool[PartTask, bytes], folder: Path) -> DecodedSession:
    async def progress(done: int, total: int) -> None:
        assert done <= total

    for name in ("scratch", "worker", "debug"):
        (folder / name).mkdir(exist_ok=True)
    decoder = SessionDecoder(
        store,
        Tables(store),
        pool,
        folder=folder / "scratch",
        workers_folder=str(folder / "worker"),
        debug_folder=folder / "debug",
    )
    return await decoder.decode(SESSION, "operations/1", progress)


async def rows(store: ObjectStore, table: str) -> list[dict[str, Any]]:
    dataset = await Tables(store).dataset(table)
    found: list[dict[str, Any]] = dataset.to_table().to_pylist()
    return found


async def test_the_packets_of_cores_are_decoded_to_what_each_thread_ran(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await stored(store)
    told = await decoded(store, pool, tmp_path)
    assert (told.instructions, told.lost_bytes, told.raw_bytes) == (INSTRUCTIONS, 0, 4201)
    segments = sorted(await rows(store, "segments"), key=lambda row: int(row["segment"]))
    # The second thread ran on both cores.
    assert [(row["tid"], row["core"], row["instructions"], row["size_bytes"]) for row in segments] == [
        (91, 0, 581, 2403),
        (92, 0, 279, 904),
        (92, 1, 248, 894),
    ]
    assert {row["thread"] for row in segments} == {"two_threads"}
    assert await rows(store, "losses") == []
    functions = {row["name"]: row["self_instructions"] for row in await rows(store, "functions")}
    assert set(functions) == {"first", "second", "wait_for", "hand_over"}
    assert sum(functions.values()) == INSTRUCTIONS
    (session,) = await rows(store, "sessions")
    assert (session["backend"], session["raw_bytes"], session["segments"]) == ("kmod", 4201, 3)


async def test_each_thread_is_in_its_own_function_and_calls_have_its_core(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await stored(store)
    await decoded(store, pool, tmp_path)
    where = Counter((row["tid"], row["name"]) for row in await rows(store, "calls"))
    assert (91, "second") not in where
    assert (92, "first") not in where
    assert {tid for tid, name in where if name == "hand_over"} == {91, 92}
    assert {(row["tid"], row["core"]) for row in await rows(store, "calls")} == {(91, 0), (92, 0), (92, 1)}


async def test_records_of_another_thread_give_what_ran_to_that_one(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    """The switch records alone say who ran: nothing else in the archive does."""
    switches = bytearray((GOLDEN / "raw" / SESSION / "switches.bin").read_bytes())
    for at in range(0, len(switches), RECORD):
        switches[at + 16 : at + 20] = (91).to_bytes(4, "little")
    await stored(store, switches=bytes(switches))
    told = await decoded(store, pool, tmp_path)
    assert told.instructions == INSTRUCTIONS
    assert {row["tid"] for row in await rows(store, "segments")} == {91}


async def test_without_records_what_ran_is_lost_and_says_so(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await stored(store, switches=b"")
    told = await decoded(store, pool, tmp_path)
    assert (told.instructions, told.lost_bytes) == (0, 4201)
    assert {row["reason"] for row in await rows(store, "losses")} == {
        "no switch record says who ran on core 0",
        "no switch record says who ran on core 1",
    }


async def test_a_process_whose_mappings_nobody_saw_is_a_loss_with_that_reason(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    maps = json.dumps({"version": 1, "processes": []}).encode()
    await stored(store, maps=maps)
    told = await decoded(store, pool, tmp_path)
    assert told.instructions == 0
    assert all("mappings of process 91 are missing" in row["reason"] for row in await rows(store, "losses"))


async def test_a_machine_that_has_been_up_for_long_is_as_one_just_started(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    """Packets have the lowest 56 bits of the TSC; switch records and the manifest have all."""
    await stored(store)
    await decoded(store, pool, tmp_path)
    just_started = {table: await rows(store, table) for table in ("calls", "functions")}
    folder = shutil.copytree(GOLDEN, tmp_path / "long") / "raw" / SESSION
    manifest = json.loads((folder / "manifest.json").read_text())
    for times in (manifest["clock"], *manifest["segments"]):
        times |= {name: ticks + WRAP for name, ticks in times.items() if "tsc" in name}
    switches = bytearray((folder / "switches.bin").read_bytes())
    switches[7::RECORD] = bytes(byte + (WRAP >> 56) for byte in switches[7::RECORD])
    manifest["switches"]["sha256"] = hashlib.sha256(switches).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "switches.bin").write_bytes(switches)
    for name in ("manifest.json", "switches.bin"):
        await store.put_stream(f"raw/{SESSION}/{name}", (folder / name).read_bytes())
    told = await decoded(store, pool, tmp_path)
    assert (told.instructions, told.lost_bytes) == (INSTRUCTIONS, 0)
    for table, before in just_started.items():
        unordered = [sorted(map(str, found)) for found in (before, await rows(store, table))]
        assert unordered[0] == unordered[1], table
    listed, whole = Capture(folder), Capture(GOLDEN / "raw" / SESSION)
    for number in range(2):
        (piece,), (of_whole,) = listed.pieces(number, 1 << 20), whole.pieces(number, 1 << 20)
        assert (piece.first_tsc, piece.turns) == (of_whole.first_tsc + WRAP, of_whole.turns)


async def test_of_a_snapshot_what_it_has_kept_is_decoded_to_what_its_threads_ran(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    """The switch records are those of the whole period; core 0 has kept what it wrote from its second PSB on."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["core"], row["start_ns"], row["tid"], row["name"], row["self_instructions"]

    await stored(store)
    whole = await decoded(store, pool, tmp_path)
    calls = await rows(store, "calls")
    manifest = json.loads((GOLDEN / manifest_key(SESSION)).read_text())
    packets = zstandard.decompress((GOLDEN / manifest["segments"][0]["key"]).read_bytes(), 1 << 20)
    kept = packets[packets.index(PSB, 1) :]
    manifest["segments"][0] |= {"size_bytes": len(kept), "sha256": hashlib.sha256(kept).hexdigest()}
    await store.put_stream(manifest["segments"][0]["key"], zstandard.compress(kept))
    await store.put_stream(manifest_key(SESSION), json.dumps(manifest).encode())
    told = await decoded(store, pool, tmp_path)
    assert (told.lost_bytes, told.raw_bytes) == (0, 4201 - len(packets) + len(kept))
    assert 248 < told.instructions < whole.instructions
    assert await rows(store, "losses") == []
    last = await rows(store, "calls")
    # What was under way when it begins has lost its beginning.
    of_core = [row for row in last if row["core"] == 0 and not row["begin_truncated"]]
    since = min(row["start_ns"] for row in of_core)
    there = [key(row) for row in calls if row["core"] == 0 and row["start_ns"] >= since]
    assert sorted(map(key, of_core)) == sorted(there)
    assert {row["tid"] for row in of_core} == {91, 92}
    assert sorted(key(row) for row in last if row["core"] == 1) == sorted(key(row) for row in calls if row["core"] == 1)


def test_the_archive_itself_can_be_listed() -> None:
    capture = Capture(GOLDEN / "raw" / SESSION)
    streams = capture.streams()
    assert [(stream.core, stream.size_bytes, {tid for _, tid, _ in stream.threads}) for stream in streams] == [
        (0, 3307, {91, 92}),
        (1, 894, {92}),
    ]
    assert capture.warnings == []


def test_a_call_goes_on_on_the_core_to_which_its_thread_went() -> None:
    def ran(calls: list[dict[str, Any]]) -> Counter[tuple[int, str]]:
        counted: Counter[tuple[int, str]] = Counter()
        for call in calls:
            counted[call["tid"], call["function"]] += call["self_instructions"]
        return counted

    together, apart = listed(0, 1), listed(0) + listed(1)
    assert ran(together) == ran(apart)
    assert sum(ran(together).values()) == INSTRUCTIONS
    # The second thread is on core 0 first and then on core 1: what it had begun there is over here.
    assert {call["tid"] for call in apart if call["stream"] == "core 1"} == {92}
    assert len(apart) - len(together) == 2
    assert sum(call["begin_truncated"] or call["end_truncated"] for call in together) == 4
    moved = [call for call in together if call["tid"] == 92 and call["function"] == "second"]
    assert [(call["stream"], call["begin_truncated"], call["end_truncated"]) for call in moved] == [
        ("core 1", True, True)
    ]
    waits = [call for call in together if call["tid"] == 92 and call["function"] == "wait_for"]
    assert [call["end_truncated"] for call in waits] == [False] * 17 + [True]
    (both,) = (call for call in waits if call["start_tsc"] < CHANGED_TSC <= call["end_tsc"])
    assert both["self_instructions"] == 18


def listed(*cores: int) -> list[dict[str, Any]]:
    capture = Capture(GOLDEN / "raw" / SESSION)
    return [json.loads(row) for batch in capture.calls([*cores], json=True) for row in batch.splitlines()]


def as_told(call: dict[str, Any]) -> tuple[Any, ...]:
    return call["tid"], call["function"], call["self_instructions"], call["begin_truncated"], call["end_truncated"]


async def calls_of(store: ObjectStore) -> list[dict[str, Any]]:
    return [row | {"function": row["name"]} for row in await rows(store, "calls")]


async def test_tables_have_the_calls_of_threads_that_change_cores(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    await stored(store)
    told = await decoded(store, pool, tmp_path)
    calls = await calls_of(store)
    assert sorted(map(as_told, calls)) == sorted(map(as_told, listed(0, 1)))
    assert told.calls == len(calls)
    # All of a thread are in the segment of the core where it first ran, and each says where it began.
    assert {(row["tid"], row["segment"]) for row in calls} == {(91, 0), (92, 1)}
    clock = Clock(**json.loads((GOLDEN / manifest_key(SESSION)).read_text())["clock"])
    on_core = {(row["core"], row["start_ns"] >= clock.ns(CHANGED_TSC)) for row in calls if row["tid"] == 92}
    assert on_core == {(0, False), (1, True)}
    with open_rows({table: await Tables(store).dataset(table) for table in SCHEMAS}, SESSION, tmp_path) as found:
        assert found is not None
        assert [(thread.segment, thread.tid) for thread in found.threads()] == [(0, 91), (1, 92)]
    by_number = {(row["segment"], row["call"]): row for row in calls}
    outer = [by_number[row["segment"], row["parent"]]["function"] for row in calls if row["function"] == "wait_for"]
    assert set(outer) == {"first", "second"}


@pytest.mark.parametrize(("core", "said"), [(0, {"full": True}), (1, {"overwritten": True})])
async def test_calls_end_where_their_thread_goes_to_another_core_when_packets_may_be_missing(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path, core: int, said: dict[str, Any]
) -> None:
    await stored(store, {core: said})
    await decoded(store, pool, tmp_path)
    assert sorted(map(as_told, await calls_of(store))) == sorted(map(as_told, listed(0) + listed(1)))


async def test_a_loss_is_in_the_segment_of_its_core(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    manifest = json.loads((GOLDEN / manifest_key(SESSION)).read_text())
    (key,) = (segment["key"] for segment in manifest["segments"] if segment["core"] == 1)
    data = bytearray(zstandard.decompress((GOLDEN / key).read_bytes(), 1 << 20))
    at = next(offset for offset, _ in packets_of(bytes(data)) if offset >= 600)
    # What no packet begins with.
    data[at : at + 2] = b"\x02\x00"
    await stored(store, {1: {"sha256": hashlib.sha256(data).hexdigest()}})
    await store.put_stream(key, zstandard.compress(bytes(data)))
    told = await decoded(store, pool, tmp_path)
    (loss,) = await rows(store, "losses")
    segments = {row["segment"]: row for row in await rows(store, "segments")}
    assert (segments[loss["segment"]]["core"], segments[loss["segment"]]["tid"]) == (1, 92)
    assert (loss["stream_offset"], loss["size_bytes"]) == (at, len(data) - at)
    assert [row["lost_bytes"] for row in segments.values() if row["core"] == 0] == [0, 0]
    assert segments[loss["segment"]]["lost_bytes"] == told.lost_bytes == loss["size_bytes"]


async def test_a_number_that_another_process_takes_over_is_a_thread_of_its_own(
    store: ObjectStore, pool: SegmentPool[PartTask, bytes], tmp_path: Path
) -> None:
    """The same code ran, in another process that has the number from there on where the thread changes cores."""
    switches = bytearray((GOLDEN / "raw" / SESSION / "switches.bin").read_bytes())
    for at in range(0, len(switches), RECORD):
        tsc, core = int.from_bytes(switches[at : at + 8], "little"), switches[at + 8]
        if core == 1 and tsc >= CHANGED_TSC:
            switches[at + 12 : at + 16] = (92).to_bytes(4, "little")
    maps = json.loads((GOLDEN / "raw" / SESSION / "maps.json").read_bytes())
    (process,) = maps["processes"]
    maps["processes"].append(process | {"pid": 92})
    await stored(store, switches=bytes(switches), maps=json.dumps(maps).encode())
    told = await decoded(store, pool, tmp_path)
    assert (told.instructions, told.lost_bytes) == (INSTRUCTIONS, 0)
    of_threads = {(91, 91, 0): 581, (91, 92, 0): 279, (92, 92, 1): 248}
    segments = await rows(store, "segments")
    assert {(row["pid"], row["tid"], row["core"]): row["instructions"] for row in segments} == of_threads
    calls = await rows(store, "calls")
    assert {(row["pid"], row["tid"], row["core"]) for row in calls} == set(of_threads)
