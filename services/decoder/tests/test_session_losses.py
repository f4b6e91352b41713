"""From a stored session to rows: counted losses where something is not there."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import zstandard
from permille.decoder.domain.local_workers import LocalWorkers
from permille.decoder.domain.manifest import Manifest, Segment, read_manifest
from permille.decoder.domain.part_decoder import PartTask
from permille.decoder.domain.segment_pool import SegmentPool
from permille.decoder.domain.session_losses import session_losses
from permille.mesh.errors import Code, DataLoss, PermilleError
from permille.mesh.store import ObjectStore

from .conftest import sha256
from .decode_bench import Bench, StoreSession
from .small_program import CALL_BYTES, FIRST_TSC, INSTRUCTIONS, TICKS, Program, tsc


async def ignored(done: int, total: int) -> None:
    """Nobody looks at the progress."""


@pytest.mark.parametrize("how", ["changed", "cut off", "missing", "a folder", "other content", "other packets"])
@pytest.mark.parametrize("known", ["stored_sha256", "sha256"])
async def test_a_damaged_segment_is_a_loss_and_the_rest_is_decoded(
    bench: Bench, store_session: StoreSession, program: Any, how: str, known: str
) -> None:
    manifest = await store_session()
    key = manifest["segments"][0]["key"]
    if known == "sha256":
        # As of recorders that do not tell the other one.
        for segment in manifest["segments"]:
            del segment["stored_sha256"]
        await bench.store.put_stream(f"{key.rpartition('/')[0]}/manifest.json", json.dumps(manifest).encode())
    path = Path(urlsplit(bench.store.url).path) / key
    if how == "changed":
        path.write_bytes(bytes(len(path.read_bytes())))
    elif how == "cut off":
        await bench.store.put_stream(key, path.read_bytes()[:-6])
    elif how == "missing":
        await bench.store.delete(key)
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    elif how == "other packets":
        await bench.store.put_stream(key, zstandard.compress(program.packets()[::-1]))
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


@pytest.mark.parametrize("how", ["changed", "missing"])
async def test_what_was_decoded_is_not_given_up_for_a_segment_that_was_damaged_since(
    bench: Bench, store_session: StoreSession, how: str
) -> None:
    key = (await store_session())["segments"][0]["key"]
    await bench.decode()
    before = {table: await bench.rows(table) for table in ("sessions", "segments", "functions", "calls")}
    path = Path(urlsplit(bench.store.url).path) / key
    packets = path.read_bytes()
    if how == "changed":
        path.write_bytes(bytes(len(packets)))
    else:
        await bench.store.delete(key)
    with pytest.raises(DataLoss, match=f"1 of 2 segments of s1 were decoded before.*{key}.*its rows stay") as refused:
        await bench.decoder.decode("s1", "operations/2", ignored)
    assert refused.value.reason == "LOST_SINCE_DECODED"
    assert "backup" in refused.value.help and "permille import" in refused.value.help
    await bench.decoder.forget("s1", "operations/2")
    assert {table: await bench.rows(table) for table in before} == before

    await bench.store.put_stream(key, packets)
    assert (await bench.decode()).lost_bytes == 0


async def test_what_was_never_decoded_stays_a_loss_however_often_it_is_tried(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    await bench.store.delete((await store_session())["segments"][0]["key"])
    for _ in range(2):
        assert (await bench.decode()).lost_bytes == len(program.packets())


async def test_rows_that_nobody_can_read_give_way_to_what_is_left(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    key = (await store_session())["segments"][0]["key"]
    await bench.decode()
    for file in await bench.tables.files("segments"):
        await bench.store.delete(file)
    await bench.store.delete(key)
    assert (await bench.decode()).lost_bytes == len(program.packets())


@pytest.mark.parametrize("tells_its_size", [True, False])
@pytest.mark.parametrize(
    ("times", "said"), [(0, 1), (1, 2), (3, 1), (100_000, 1), (1, 1_000_000), (1_200_000, 600_000)]
)
async def test_a_segment_of_another_length_than_the_manifest_says_is_a_loss(  # noqa: PLR0917
    bench: Bench, store_session: StoreSession, program: Any, tells_its_size: bool, times: int, said: int
) -> None:
    manifest = await store_session()
    first, packets = manifest["segments"][0], program.packets()
    content = bytes(len(packets) * times)
    packed = zstandard.ZstdCompressor(write_content_size=tells_its_size).compress(content)
    first |= {"size_bytes": said * len(packets), "sha256": sha256(content), "stored_sha256": sha256(packed)}
    await bench.store.put_stream(first["key"], packed)
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.calls, decoded.lost_bytes) == (12, 4, said * len(packets))
    (loss,) = await bench.rows("losses")
    assert (loss["segment"], loss["size_bytes"]) == (0, said * len(packets))
    assert first["key"] in loss["reason"] and "that the manifest says" in loss["reason"] and loss["knob"]


async def test_a_segment_that_no_object_can_be_is_a_loss(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    segments = (await store_session())["segments"]
    segments[0]["key"] = "../../etc/passwd"
    await store_session(segments=segments)
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (12, len(program.packets()))
    (loss,) = await bench.rows("losses")
    assert (loss["segment"], "../../etc/passwd" in loss["reason"], bool(loss["knob"])) == (0, True, True)


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
    # It is among what was recorded.
    (session,) = await bench.rows("sessions")
    assert (session["lost_bytes"], session["unrecorded_bytes"]) == (decoded.lost_bytes, 0)
    assert all(row["knob"] for row in losses)


async def test_a_damaged_time_is_in_the_tables_as_any_other(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    run = program.packets().replace(tsc(FIRST_TSC + TICKS), tsc((1 << 54) + 1))
    await store_session(runs=[run + b"\x02\xff"])
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (INSTRUCTIONS, 2)
    (loss,) = await bench.rows("losses")
    assert loss["start_ns"] == max(row["end_ns"] for row in await bench.rows("calls"))
    assert max(row["total_ns"] for row in await bench.rows("functions")) > 1 << 53


@pytest.mark.parametrize("of_core", [False, True])
async def test_what_stops_the_flow_where_an_import_has_cut_is_not_among_the_losses(
    bench: Bench, store_session: StoreSession, program: Program, *, of_core: bool
) -> None:
    garbage = b"\x02\xffgarbage that is no packet"
    # FUP and TIP.PGD, behind what the recording has.
    appended = b"\x7d" + program.address.to_bytes(6, "little") + b"\x01"
    runs = [program.packets() + garbage + appended]
    segments = (await store_session(runs=runs))["segments"]
    segments[0]["size_bytes"] = len(runs[0]) - len(appended)
    if of_core:
        segments[0] |= {"kind": "core", "core": 3, "turns": [[0, 7, segments[0]["tid"], 1, 0, 0]]}
    await store_session(runs=runs, segments=segments, backend="imported:raw")
    decoded = await bench.decode()
    (loss,) = await bench.rows("losses")
    assert (loss["stream_offset"], loss["size_bytes"]) == (len(program.packets()), len(garbage))
    assert decoded.lost_bytes == len(garbage)


async def test_without_mappings_all_is_lost_and_told(bench: Bench, store_session: StoreSession, program: Any) -> None:
    manifest = await store_session()
    await bench.store.put_stream(manifest["maps"]["key"], b"{}")
    decoded = await bench.decode()
    assert (decoded.instructions, decoded.lost_bytes) == (0, 2 * len(program.packets()))
    assert {row["segment"] for row in await bench.rows("losses")} == {0, 1}


@pytest.mark.parametrize(
    "text", [b'{"processes":' + b"[" * 200_000, b'{"processes":[{"pid":1e400,"changes":[]}]}'], ids=["deep", "large"]
)
async def test_what_json_takes_and_python_does_not_is_damaged(
    bench: Bench, store_session: StoreSession, program: Any, text: bytes
) -> None:
    manifest = await store_session()
    maps = manifest["maps"] | {"sha256": sha256(text)}
    await store_session(maps=maps)
    await bench.store.put_stream(maps["key"], text)
    assert (await bench.decode()).lost_bytes == 2 * len(program.packets())
    assert all("it is no list of mappings" in row["reason"] for row in await bench.rows("losses"))


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


@pytest.mark.parametrize("how", ["cut off", "gone"])
async def test_a_binary_that_is_damaged_in_the_store_is_put_there_again(
    bench: Bench, store_session: StoreSession, program: Any, how: str
) -> None:
    await store_session()
    path = Path(urlsplit(bench.store.url).path) / f"binaries/{program.build_id}"
    if how == "cut off":
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.unlink()
    assert (await bench.decode()).instructions == 0
    assert not (await bench.binaries.add(program.path, debug=False)).existed
    assert (await bench.decode()).instructions == 24
    assert (await bench.binaries.add(program.path, debug=False)).existed


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


async def test_a_debug_file_is_looked_for_nowhere_where_no_file_can_be(
    bench: Bench, store_session: StoreSession, program: Any, tmp_path: Path
) -> None:
    stripped, _ = split(program.path, tmp_path)
    manifest = await store_session(binary=stripped)
    maps = json.loads(await bench.store.get(manifest["maps"]["key"]))
    # The system refuses even to look there.
    (change,) = maps["processes"][0]["changes"]
    await store_session(binary=stripped, changes=[change | {"path": f"/{'long' * 100}/small"}])
    assert (await bench.decode()).instructions == 24


async def test_what_found_no_room_is_a_loss_with_the_buffer_that_holds_it(
    bench: Bench, store_session: StoreSession
) -> None:
    manifest = await store_session()
    segments = manifest["segments"]
    segments[0] |= {"full": True, "lost_bytes": segments[0]["size_bytes"] * 3, "lost_blocks": 99}
    await store_session(segments=segments)
    decoded = await bench.decode()
    assert decoded.lost_bytes == segments[0]["lost_bytes"]
    (session,) = await bench.rows("sessions")
    assert session["unrecorded_bytes"] == session["lost_bytes"] == decoded.lost_bytes
    (loss,) = await bench.rows("losses")
    assert loss["size_bytes"] == segments[0]["lost_bytes"]
    assert "99 blocks" in loss["reason"]
    # 2 MiB held 2 of 5 parts.
    assert "--buffer 8MiB" in loss["knob"]


async def test_the_losses_of_many_threads_are_told_without_a_look_at_all_of_them_for_each(
    store_session: StoreSession,
) -> None:
    looks = count()

    class Segments(tuple[Segment, ...]):
        def __iter__(self) -> Iterator[Segment]:
            next(looks)
            return super().__iter__()

    told = await store_session()
    full = told["segments"][0] | {"full": True, "lost_bytes": 1}
    named = [full | {"index": index, "key": f"raw/s1/segment-{index}.pt.zst"} for index in range(100)]
    manifest = read_manifest(json.dumps(told | {"segments": named}).encode(), "manifest.json")
    counted = manifest.model_copy(update={"segments": Segments(manifest.segments)})
    assert len(list(session_losses(counted, {}, [], 100))) == 100
    assert next(looks) < 10


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


def split(path: Path, folder: Path) -> tuple[Path, Path]:
    """The binary without symbols, linked to its debug file, and that file."""
    debug, stripped = folder / "small.debug", folder / "small.stripped"
    subprocess.run(["objcopy", "--only-keep-debug", str(path), str(debug)], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", str(path), str(stripped)], check=True)
    return stripped, debug


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[" * 100_000, "within each other"),
        (b'{"version": 1, "start_ns": 1' + b"0" * 30 + b"}", "the number 100000000000000000000000 has no room"),
        (b'{"version": 1, "start_ns": -9223372036854775809}', "-9223372036854775809 has no room"),
    ],
)
async def test_a_manifest_of_values_that_no_table_takes_is_damaged(
    bench: Bench, store_session: StoreSession, text: bytes, told: str
) -> None:
    await store_session()
    await bench.store.put_stream("raw/s1/manifest.json", text)
    with pytest.raises(DataLoss, match=told):
        await bench.decode()


async def test_a_segment_of_more_bytes_than_can_be_is_damaged(bench: Bench, store_session: StoreSession) -> None:
    manifest = await store_session()
    manifest["segments"][1]["size_bytes"] = (1 << 48) + 1
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(DataLoss, match=r"segments\.1\.size_bytes"):
        await bench.decode()


async def test_segments_whose_sizes_have_no_sum_in_any_table_are_damaged(
    bench: Bench, store_session: StoreSession
) -> None:
    manifest = await store_session()
    large = manifest["segments"][0] | {"size_bytes": 1 << 48, "lost_bytes": 1 << 48}
    manifest["segments"] = [large | {"index": index, "key": f"raw/s1/{index}.zst"} for index in range(1 << 14)]
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(DataLoss, match="the sizes of its segments together"):
        await bench.decode()


@pytest.mark.parametrize("changed", [{}, {"index": 2}, {"index": 2, "tid": 99}, {"key": "raw/s1/segment-0.pt.zst"}])
async def test_a_manifest_that_names_a_segment_twice_is_damaged(
    bench: Bench, store_session: StoreSession, changed: dict[str, Any]
) -> None:
    manifest = await store_session()
    manifest["segments"].append(manifest["segments"][1] | changed)
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(DataLoss, match=r"names the segment \d \(raw/s1/segment-\d\.pt\.zst\) twice") as error:
        await bench.decode()
    assert error.value.reason == "MANIFEST_DAMAGED"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"index": 1 << 31}, "segments.1.index"),
        ({"tid": 1 << 31}, "segments.1.tid"),
        ({"pid": -(1 << 31) - 1}, "segments.1.pid"),
        ({"core": 1 << 40}, "segments.1.core"),
        ({"epochs": [[0, 1 << 30]]}, "segments.1.epochs.0.1"),
        ({"turns": [[0, 7, 70, 1 << 30, 0]]}, "segments.1.turns.0.3"),
        ({"turns": [[0, 7, -1, 0, 0]]}, "segments.1.turns.0.2"),
        ({"lost_offsets": [-1]}, "segments.1.lost_offsets.0"),
        ({"stream_begin": (1 << 64) - 1}, "segments.1.stream_begin"),
        ({"first_tsc": 1 << 63}, "segments.1.first_tsc"),
        ({"last_tsc": (1 << 63) - 1}, "the times of the segment 1"),
    ],
)
async def test_a_segment_with_numbers_that_nothing_takes_is_damaged(
    bench: Bench, store_session: StoreSession, changed: dict[str, Any], told: str
) -> None:
    manifest = await store_session()
    manifest["segments"][1] |= changed
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(DataLoss, match=re.escape(told)) as error:
        await bench.decode()
    assert error.value.reason == "MANIFEST_DAMAGED"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"family": 1 << 32}, "pt.family"),
        ({"mtc_freq": 256}, "pt.mtc_freq"),
        ({"nominal_ratio": -1}, "pt.nominal_ratio"),
        ({"tsc_ctc_ratio": [0, 1 << 32]}, "pt.tsc_ctc_ratio.1"),
    ],
)
async def test_a_processor_of_numbers_that_nothing_takes_is_damaged(
    bench: Bench, store_session: StoreSession, changed: dict[str, Any], told: str
) -> None:
    manifest = await store_session()
    await store_session(pt=manifest["pt"] | changed)
    with pytest.raises(DataLoss, match=re.escape(told)):
        await bench.decode()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"address": "here"}, "change 0.address"),
        ({"address": -5}, "change 0.address"),
        ({"size_bytes": -1}, "change 0.size_bytes"),
        ({"address": (1 << 64) - 4096, "size_bytes": 8192}, "nothing has 8,192 bytes at 0xfffffffffffff000"),
        ({"size_bytes": 0}, "nothing has 0 bytes at"),
        ({"offset": -4096}, "change 0.offset"),
        ({"epoch": 1 << 40}, "change 0.epoch"),
        ({"path": None}, "change 0.path"),
        ({"binary": 5}, "change 0.binary"),
    ],
)
async def test_mappings_of_values_that_nothing_takes_are_damaged(
    bench: Bench, store_session: StoreSession, program: Program, changed: dict[str, Any], told: str
) -> None:
    await store_session(changes=[program.mapping(**changed)])
    assert (await bench.decode()).instructions == 0
    assert any(told in row["reason"] for row in await bench.rows("losses"))


async def test_what_is_no_key_of_a_binary_loses_only_that_binary(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    other = program.mapping(address=0x10000, binary="binaries/../../x", path="/lib/x.so")
    await store_session(changes=[program.mapping(), other])
    assert (await bench.decode()).instructions == 24


async def test_code_that_the_archive_has_not_is_missing(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    await store_session(changes=[program.mapping(event="code", binary="", code_offset=100)], code=b"\x90")
    assert (await bench.decode()).instructions == 0
    assert any("file of code ends in front" in row["reason"] for row in await bench.rows("losses"))


@pytest.mark.parametrize("ns", [1 << 62, -(1 << 62)])
async def test_a_clock_that_cannot_be_leads_to_times_in_the_tables(
    bench: Bench, store_session: StoreSession, ns: int
) -> None:
    manifest = await store_session(clock={"tsc0": 0, "ns0": 0, "tsc1": 100, "ns1": ns})
    for segment in manifest["segments"]:
        segment |= {"first_tsc": 0, "last_tsc": 0}
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    assert (await bench.decode()).instructions == 24


async def test_names_in_the_manifest_that_are_no_unicode_are_written_out(
    bench: Bench, store_session: StoreSession
) -> None:
    manifest = await store_session()
    manifest["segments"][0]["thread_name"] = "caf\udce9"
    manifest["target"]["name"] = "latin-\udce9"
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    await bench.decode()
    assert (await bench.rows("sessions"))[0]["target"] == "latin-\\udce9"
    assert "caf\\udce9" in {row["thread"] for row in await bench.rows("segments")}


async def test_branches_that_were_not_traced_are_no_damage(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    outer, start = program.symbols["outer"], program.symbols["_start"]
    # TIP packets with whole addresses: each return has one where no branch is told.
    returns = [outer + CALL_BYTES, outer + 2 * CALL_BYTES, start + CALL_BYTES]
    targets = b"".join(b"\xcd" + address.to_bytes(8, "little") for address in returns)
    head, _, _ = program.packets().partition(bytes([0b1110]))
    run = head + targets + tsc(FIRST_TSC + TICKS) + b"\x01"
    pt = (await store_session())["pt"]
    await store_session(runs=[run], pt=pt | {"without_tnt": True})
    decoded = await bench.decode()
    # All but the branch in `inner`, what follows there, and its return, twice.
    assert (decoded.instructions, decoded.lost_bytes) == (INSTRUCTIONS - 4, 0)
    assert {row["reason"] for row in await bench.rows("losses")} == {"not-traced: conditional branches are not traced"}
    assert [row["errors"] for row in await bench.rows("segments")] == [0]


async def test_a_direct_branch_out_of_what_was_traced_ends_the_trace(
    bench: Bench, store_session: StoreSession, program: Program
) -> None:
    """On processors that may leave out its address (SKL014), when the manifest says what was traced."""
    head, _, _ = program.packets().partition(bytes([0b1110]))
    run = head + tsc(FIRST_TSC + TICKS) + b"\x01"
    pt = (await store_session())["pt"] | {"family": 6, "model": 142, "stepping": 9}
    start = program.symbols["_start"]
    ran = []
    for filtered in ([], [[start, start + CALL_BYTES - 1]]):
        await store_session(runs=[run], pt=pt | {"filter": filtered})
        ran.append((await bench.decode()).instructions)
        functions = {row["name"] for row in await bench.rows("functions")}
        assert (functions == {"_start"}) == bool(filtered)
    assert ran[0] > ran[1] == 1


async def test_a_copy_of_a_session_in_the_store_does_not_take_its_place(
    bench: Bench, store_session: StoreSession, tmp_path: Path
) -> None:
    await store_session()
    await bench.decode()
    rows = await bench.rows("calls")
    async for info in bench.store.list("raw/s1/"):
        await bench.store.put_stream(info.key.replace("/s1/", "/copy/"), await bench.store.get(info.key))
    with pytest.raises(DataLoss, match=r"raw/copy/manifest.json .* that of the session nodes/n/sessions/s1"):
        await bench.decode("copy")
    assert await bench.rows("calls") == rows


async def test_packets_that_are_missing_end_all_calls_there(
    bench: Bench, store_session: StoreSession, program: Any
) -> None:
    run = program.packets()
    # Behind the first branch, inside of `outer`.
    at = run.index(bytes([0b1110])) + 1
    manifest = await store_session(runs=(run[:at] + run,))
    manifest["segments"][0]["lost_offsets"] = [at]
    await bench.store.put_stream("raw/s1/manifest.json", json.dumps(manifest).encode())
    await bench.decode()
    (loss,) = await bench.rows("losses")
    assert (loss["segment"], loss["stream_offset"], loss["size_bytes"]) == (0, at, 0)
    assert loss["reason"] == "missing-packets: the recorder lost packets here"
    assert "--buffer" in loss["knob"]
    calls = sorted(await bench.rows("calls"), key=lambda call: call["start_ns"])
    # `_start`, `outer` and `inner` are open there; in the other run it is `_start` alone that does not return.
    assert [call["depth"] for call in calls if call["end_truncated"]] == [0, 1, 2, 0]


def test_an_imported_cores_full_buffer_is_told_as_that_of_a_core() -> None:
    told: dict[str, Any] = {"kind": "core", "core": 3, "pid": 7, "sha256": "", "key": "segment-0.pt.zst"}
    threads = [Segment(index=index, tid=70 + index, size_bytes=1000, **told) for index in range(2)]
    threads[1] = threads[1].model_copy(update={"full": True, "buffer_bytes": 2048, "last_tsc": 5})
    file = {"key": "", "sha256": ""}
    manifest = Manifest.model_validate(
        {
            "version": 1,
            "session": "nodes/imported/sessions/session-1",
            "session_id": "session-1",
            "node": "imported",
            "backend": "imported:kmod",
            "start_ns": 1,
            "end_ns": 9,
            "clock": {"tsc0": 1, "ns0": 1, "tsc1": 9, "ns1": 9},
            "pt": {"family": 6, "model": 94, "stepping": 3},
            "segments": threads,
            "switches": file,
            "maps": file,
            "code": file,
        }
    )
    (loss,) = session_losses(manifest, {}, [], 0)
    assert loss["reason"] == "the buffer of core 3 was full: what ran afterwards was not recorded"
    assert loss["knob"].startswith("permille trace --buffer")
