"""Sessions that clients upload, and cores' streams decoded to threads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from permille.api.decoder.v1 import decoder_pb2
from permille.decoder.domain.archive import SessionArchive
from permille.decoder.domain.binary_repository import BinaryRepository
from permille.decoder.domain.decode_plan import planned, streams
from permille.decoder.domain.knobs import decode_knob
from permille.decoder.domain.manifest import Segment
from permille.decoder.domain.session_context import KERNEL, SessionContext, open_context
from permille.decoder.service.session_upload import SessionUpload
from permille.mesh.errors import DataLoss, InvalidArgument, ResourceExhausted, Unavailable
from permille.mesh.etcd import Etcd
from permille.mesh.store import ObjectInfo, ObjectStore
from permille.ptcore import Image, PtConfig, decode, decode_threads

from .small_program import Program

NAME = "nodes/imported/sessions/griffin-0123456789ab"
FOLDER = "raw/griffin-0123456789ab/"
File = tuple[str, bytes]
StoreSession = Callable[..., Awaitable[dict[str, Any]]]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files(packets: bytes = b"packets" * 100, **changes: Any) -> list[File]:
    """An upload: two threads on one core, and what else a session has."""
    maps = json.dumps({"version": 1, "processes": [{"pid": 7, "changes": []}]}).encode()
    common = {"key": "segment-0.pt.zst", "sha256": sha256(packets), "pid": 7, "core": 3}
    manifest = {
        "version": 1,
        "session": NAME,
        "session_id": NAME.rpartition("/")[2],
        "node": "imported",
        "backend": "imported:griffin",
        "purpose": "IMPORT",
        "target": {"pids": [7], "name": "hello", "command_line": []},
        "start_ns": 1,
        "end_ns": 2,
        "stop_reason": "IMPORTED",
        "clock": {"tsc0": 0, "ns0": 1, "tsc1": 0, "ns1": 2},
        "pt": {"family": 6, "model": 94, "stepping": 3},
        "segments": [
            {"index": 0, **common, "tid": 70, "size_bytes": len(packets) - 100, "turns": [[0, 7, 70, 0, 0]]},
            {"index": 1, **common, "tid": 71, "size_bytes": 100},
        ],
        "switches": {"key": "switches.bin", "count": 0, "sha256": sha256(b"")},
        "maps": {"key": "maps.json", "sha256": sha256(maps)},
        "code": {"key": "code.bin.zst", "size_bytes": 0, "sha256": sha256(b"")},
    } | changes
    return [
        ("segment-0.pt.zst", packets),
        ("switches.bin", b""),
        ("maps.json", maps),
        ("code.bin.zst", b""),
        ("manifest.json", json.dumps(manifest).encode()),
    ]


async def requests(sent: Sequence[File], session: str = NAME) -> AsyncIterator[decoder_pb2.UploadSessionRequest]:
    for name, data in sent:
        pieces = [data[at : at + 300] for at in range(0, len(data), 300)] or [b""]
        for number, piece in enumerate(pieces):
            yield decoder_pb2.UploadSessionRequest(session=session, file="" if number else name, data=piece)
            session = ""


async def keys(store: ObjectStore, prefix: str = "raw/") -> list[str]:
    return [info.key async for info in store.list(prefix)]


async def test_an_upload_is_a_session_that_is_listed(store: ObjectStore, etcd: Etcd) -> None:
    packets = b"packets" * 100
    stored = await SessionUpload(store, etcd).receive(requests(files(packets)))
    assert (stored.session, stored.existed) == (NAME, False)
    archive = await SessionArchive.open(store, NAME.rpartition("/")[2])
    assert archive.sha256 == stored.recording
    first, second = archive.manifest.segments
    assert first.key == second.key and first.key.startswith(FOLDER)
    # What is stored is divided among the segments that share it.
    info = await store.head(first.key)
    size = info.size_bytes
    assert first.stored_sha256 == second.stored_sha256 == info.sha256
    assert first.stored_bytes + second.stored_bytes == size == stored.stored_bytes
    assert first.stored_bytes > second.stored_bytes
    assert await archive.segments_bytes([first, second]) == packets
    assert await archive.maps() == {7: []}
    record = await etcd.get(f"/permille/v1/{NAME}")
    assert record is not None
    listed = json.loads(record.value)
    assert (listed["state"], listed["backend"], listed["raw_bytes"]) == ("STORED", "imported", 700)


async def test_what_was_asked_for_when_it_was_recorded_is_listed(store: ObjectStore, etcd: Etcd) -> None:
    target = {"pids": [7], "name": "hello", "command_line": ["hello", "--often"]}
    await SessionUpload(store, etcd).receive(requests(files(period_ms=500, stop_reason="PERIOD", target=target)))
    record = await etcd.get(f"/permille/v1/{NAME}")
    assert record is not None
    listed = json.loads(record.value)
    assert (listed["period_ms"], listed["stop_reason"]) == (500, "PERIOD")
    assert listed["command_line"] == target["command_line"]


async def test_what_a_client_need_not_tell_may_be_missing(store: ObjectStore, etcd: Etcd) -> None:
    manifest = json.loads(files()[-1][1])
    for name in ("target", "purpose", "stop_reason"):
        manifest.pop(name, None)
    sent = [*files()[:-1], ("manifest.json", json.dumps(manifest).encode())]
    await SessionUpload(store, etcd).receive(requests(sent))
    record = await etcd.get(f"/permille/v1/{NAME}")
    assert record is not None
    assert json.loads(record.value)["pids"] == []
    assert len(await keys(store)) == len(sent)


async def test_what_could_not_be_listed_is_not_there(store: ObjectStore) -> None:
    class Broken:
        async def put(self, *_: Any) -> None:
            raise RuntimeError("of whatever kind")

    unlisted: Any = Broken()
    with pytest.raises(RuntimeError):
        await SessionUpload(store, unlisted).receive(requests(files()))
    assert await keys(store) == []


async def test_an_upload_names_no_object_of_others(store: ObjectStore, etcd: Etcd) -> None:
    jit = [{"pid": 7, "kind": "perf-map", "key": "raw/other/jit-1.zst", "sha256": sha256(b"")}]
    await SessionUpload(store, etcd).receive(requests(files(jit=jit)))
    assert (await SessionArchive.open(store, NAME.rpartition("/")[2])).manifest.jit == ()


async def test_the_same_session_is_answered_without_reading_on(store: ObjectStore, etcd: Etcd) -> None:
    upload = SessionUpload(store, etcd)
    first = await upload.receive(requests(files()))
    known = await keys(store)

    async def only_the_first() -> AsyncIterator[decoder_pb2.UploadSessionRequest]:
        yield decoder_pb2.UploadSessionRequest(session=NAME, file="segment-0.pt.zst", data=b"packets")
        raise AssertionError("nothing more is to be read")

    again = await upload.receive(only_the_first())
    assert again.existed and again.recording == first.recording
    assert await keys(store) == known


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ([], "is no name of an imported session"),
        (files()[:-1], "manifest.json did not come"),
        ([*files()[1:]], "names the file 'segment-0.pt.zst', which did not come"),
        ([("../x", b""), *files()], "'../x' cannot be the name"),
        ([files()[0], *files()], "'segment-0.pt.zst' cannot be the name of the next file"),
        ([*files()[:-1], ("manifest.json", b"{}")], "the manifest cannot be taken"),
        ([*files()[:-1], ("manifest.json", b"[" * 200_000)], "the manifest cannot be taken"),
        (files(session="nodes/imported/sessions/other"), "it is that of 'nodes/imported/sessions/other'"),
        (files(segments=[{"index": -1}]), "the manifest cannot be taken"),
    ],
)
async def test_what_is_no_session_is_refused_and_leaves_nothing(
    store: ObjectStore, etcd: Etcd, sent: list[File], told: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await SessionUpload(store, etcd).receive(requests(sent))
    assert told in refused.value.message and refused.value.help
    assert await keys(store) == []
    assert await etcd.get(f"/permille/v1/{NAME}") is None


async def test_only_imported_sessions_can_be_uploaded(store: ObjectStore, etcd: Etcd) -> None:
    for name in ("nodes/n1/sessions/20261121-073851-a76b329d", "nodes/imported/sessions/../x", NAME + "/"):
        with pytest.raises(InvalidArgument):
            await SessionUpload(store, etcd).receive(requests(files(), session=name))


async def test_a_file_that_changed_on_its_way_is_refused(store: ObjectStore, etcd: Etcd) -> None:
    sent = [("segment-0.pt.zst", b"others"), *files()[1:]]
    with pytest.raises(DataLoss, match="another SHA-256"):
        await SessionUpload(store, etcd).receive(requests(sent))
    assert await keys(store) == []


async def test_a_client_that_goes_away_leaves_nothing(store: ObjectStore, etcd: Etcd) -> None:
    async def broken() -> AsyncIterator[decoder_pb2.UploadSessionRequest]:
        async for request in requests(files()[:-1]):
            yield request
        assert len(await keys(store)) >= 3
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await SessionUpload(store, etcd).receive(broken())
    assert await keys(store) == []


class SlowStore:
    """A store that is asked for something while it puts manifests."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.putting = asyncio.Event()
        self.cancelled = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put_stream(self, key: str, data: Any) -> ObjectInfo:
        info = await self._store.put_stream(key, data)
        if key.endswith("manifest.json"):
            self.putting.set()
            await self.cancelled.wait()
        return info


async def test_a_client_that_goes_away_at_the_last_moment_leaves_a_whole_session(
    store: ObjectStore, etcd: Etcd
) -> None:
    slow: Any = SlowStore(store)
    upload = asyncio.create_task(SessionUpload(slow, etcd).receive(requests(files())))
    await slow.putting.wait()
    upload.cancel()
    await asyncio.sleep(0)
    slow.cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await upload
    stored = await keys(store)
    assert {key.rpartition("/")[2] for key in stored} == {name for name, _ in files()}
    assert await etcd.get(f"/permille/v1/{NAME}") is not None
    assert (await SessionUpload(store, etcd).receive(requests(files()))).existed is True


async def test_an_upload_whose_files_were_removed_meanwhile_is_no_session(store: ObjectStore, etcd: Etcd) -> None:
    async def slowly() -> AsyncIterator[decoder_pb2.UploadSessionRequest]:
        async for request in requests(files()):
            if request.file == "manifest.json":
                await store.delete_prefix(FOLDER)
            yield request

    with pytest.raises(Unavailable) as error:
        await SessionUpload(store, etcd).receive(slowly())
    assert error.value.reason == "UPLOAD_ABANDONED"
    assert await keys(store) == []


class FullStore:
    """A store that has no room for manifests."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put_stream(self, key: str, data: Any) -> ObjectInfo:
        if key.endswith("manifest.json"):
            raise ResourceExhausted("full", reason="STORE_FULL")
        return await self._store.put_stream(key, data)


async def test_a_full_store_ends_the_upload_and_is_left_as_it_was(store: ObjectStore, etcd: Etcd) -> None:
    full: Any = FullStore(store)
    with pytest.raises(ResourceExhausted):
        await SessionUpload(full, etcd).receive(requests(files()))
    assert await keys(store) == []
    assert (await SessionUpload(store, etcd).receive(requests(files()))).existed is False


async def test_what_a_dead_decoder_left_is_removed_by_the_next_upload(
    store: ObjectStore, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = f"{FOLDER}0011223344556677/segment-0.pt.zst"
    await store.put_stream(left, b"left")
    upload = SessionUpload(store, etcd)
    await upload.receive(requests(files()))
    # It may be of an upload that goes on.
    assert left in await keys(store)
    await store.delete_prefix(FOLDER)
    await store.put_stream(left, b"left")
    monkeypatch.setattr("permille.decoder.service.session_upload._ABANDONED_S", -1.0)
    await upload.receive(requests(files()))
    assert left not in await keys(store)


def segment(index: int, key: str, size_bytes: int) -> Segment:
    return Segment(index=index, key=key, pid=1, tid=index, size_bytes=size_bytes, sha256="")


def test_the_threads_of_one_stream_are_decoded_together() -> None:
    segments = [segment(number, f"stream-{number % 3}", 3 << 20) for number in range(9)]
    assert [[one.index for one in stream] for stream in streams(segments)] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    parts = planned(segments, 2)
    assert sorted(one.index for part in parts for one in part) == list(range(9))
    for part in parts:
        assert all(len(stream) == 3 for stream in streams(part))


async def opened(store: ObjectStore, folder: Path) -> SessionContext:
    return await open_context(
        await SessionArchive.open(store, "s1"), BinaryRepository(store, folder / "binaries"), folder
    )


async def test_a_core_is_divided_by_its_turns(
    store: ObjectStore, store_session: StoreSession, program: Program, tmp_path: Path
) -> None:
    await store_session()
    context = await opened(store, tmp_path)
    run = program.packets()
    core = run * 3
    turns = [(0, 7, 70, 1, 0, 0), (len(run), 7, 71, 1, 0, 0), (2 * len(run), 7, 70, 1, 0, 0)]
    alone = decode(run, context.image(7), context.config, [(0, 1)])
    taken: dict[int, list[Any]] = {70: [], 71: []}
    takes = {(4, 7, tid): lambda *columns, tid=tid: taken[tid].append(columns) for tid in taken}
    images, config = context.images([7]), context.config
    told = decode_threads([(core, 4, turns, True)], images, config, takes)
    assert set(told) == {(4, 7, 70), (4, 7, 71)}
    threads = {tid: decoded for (_, _, tid), decoded in told.items()}
    assert all(decoded.cores[4] | {"calls": decoded.stats["calls"]} == decoded.stats for decoded in threads.values())
    for tid, batches in taken.items():
        assert sum(len(calls["call"]) for calls, _, _ in batches) == threads[tid].stats["calls"]
        functions = [len(told["address"]) for _, told, _ in batches]
        sums: Any = threads[tid].functions()["calls"]
        assert sum(functions) == len(sums)
    for tid, runs in ((70, 2), (71, 1)):
        for counter in ("instructions", "conditional_branches", "returns", "calls", "psb", "errors", "lost_bytes"):
            assert threads[tid].stats[counter] == runs * alone.stats[counter], (tid, counter)
        own: Any = threads[tid].functions()["self_instructions"]
        assert sum(memoryview(own)) == threads[tid].stats["instructions"]
    with pytest.raises(ZeroDivisionError):
        decode_threads([(core, 4, turns, True)], images, config, {(4, 7, 71): lambda *_: 1 // 0})
    # Nobody knows who ran.
    nobody = decode_threads([(core, 4, [], True)], images, config)
    assert {thread: decoded.stats["instructions"] for thread, decoded in nobody.items()} == {(4, 0, 0): 0}
    with pytest.raises(ValueError, match="no image of process 8"):
        decode_threads([(core, 4, [(0, 8, 80, 0, 0, 0)], True)], images, config)


async def test_threads_that_share_the_work_tell_the_same_of_threads_that_change_cores(
    store: ObjectStore, store_session: StoreSession, program: Program, tmp_path: Path
) -> None:
    await store_session()
    context = await opened(store, tmp_path)
    # So long that there is something to share.
    run = program.packets() + bytes(1 << 15)
    # Each goes on to the next core.
    stays = [(core, turn, 70 + (core + turn) % 3) for turn in range(6) for core in range(3)]
    records = [
        (10 * turn + 1 + operation * 5, core, 7, tid, 1 - operation)
        for core, turn, tid in stays
        for operation in (0, 1)
    ]
    switches = b"".join(struct.pack("<QIIII", *record) for record in sorted(records))
    turns = {
        core: [(turn * len(run), 7, tid, 1, 0, turn) for on, turn, tid in stays if on == core] for core in range(3)
    }
    cores = [(run * 6, core, turns[core], True) for core in range(3)]
    images, config = context.images([7]), context.config

    def told(threads: int) -> dict[int, Any]:
        calls: dict[int, list[Any]] = {70: [], 71: [], 72: []}

        def take(tid: int, columns: Any) -> None:
            calls[tid] += zip(*(memoryview(columns[name]).tolist() for name in columns), strict=True)

        takes = {(core, 7, tid): lambda columns, *_, tid=tid: take(tid, columns) for core in range(3) for tid in calls}
        found = decode_threads(cores, images, config, takes, switches=switches, threads=threads)
        assert set(found) == {(0, 7, 70), (1, 7, 71), (2, 7, 72)}
        return {
            tid: (calls[tid], decoded.stats, decoded.cores, *map(plain, totals(decoded)))
            for (_, _, tid), decoded in found.items()
        }

    def totals(decoded: Any) -> tuple[Any, ...]:
        # A block that ran on two cores may be told twice.
        return decoded.functions(), decoded.edges(), decoded.accesses(), decoded.blocks()

    def plain(columns: Any) -> set[Any]:
        return set(zip(*(memoryview(column).tolist() for column in columns.values()), strict=True))

    one = told(1)
    assert all(len(calls) > 6 for calls, *_ in one.values())
    assert all(set(on_cores) == {0, 1, 2} for _, _, on_cores, *_ in one.values())
    assert [told(2), told(3), told(9)] == [one] * 3
    with pytest.raises(ZeroDivisionError):
        decode_threads(cores, images, config, {(1, 7, 71): lambda *_: 1 // 0}, switches=switches, threads=3)
    with pytest.raises(ValueError, match="core 0 is given twice"):
        decode_threads([*cores, cores[0]], images, config)
    assert decode_threads([], images, config) == {}


def test_all_threads_share_the_kernels_half() -> None:
    code = bytes.fromhex("7500 90 c3")  # jne to the next instruction, nop, ret
    user, kernel = 0x401000, 0xFFFFFFFF81000000
    images = {7: Image(), 8: Image(), KERNEL: Image()}
    images[7].code(0, user, code)
    images[KERNEL].code(0, kernel, code)

    def run(address: int) -> bytes:
        start = bytes.fromhex("0282") * 8 + bytes.fromhex("9901 0223") + b"\xd1" + address.to_bytes(8, "little")
        return start + bytes([0b100]) + b"\x2d" + (0x1234).to_bytes(2, "little") + b"\x01"

    both = run(user) + run(kernel)
    turns = [(0, 7, 70, 0, 0, 0), (len(both), 8, 80, 0, 0, 0)]
    threads = decode_threads([(both * 2, 0, turns, True)], images, PtConfig(6, 94, 3, 0, (0, 0), 0))
    # What is mapped for one process alone is not there for the other; the kernel is.
    assert threads[0, 7, 70].stats["conditional_branches"] == 2
    assert threads[0, 8, 80].stats["conditional_branches"] == 1
    assert threads[0, 8, 80].stats["lost_bytes"] > 0


@pytest.mark.parametrize("together", [False, True])
def test_a_number_that_another_process_takes_over_is_another_thread(together: bool) -> None:
    start = 0x401000
    images = {7: Image(), 70: Image()}
    images[7].code(0, start, bytes.fromhex("7500 90 c3"))  # jne to the next instruction, nop, ret
    images[70].code(0, start, bytes.fromhex("7500 90 90 c3"))
    psb = bytes.fromhex("0282") * 8 + bytes.fromhex("9901 0223")
    enabled, disabled = b"\xd1" + start.to_bytes(8, "little"), b"\x2d" + (0x1234).to_bytes(2, "little") + b"\x01"
    run = psb + enabled + bytes([0b100]) + disabled
    turns = [(0, 7, 70, 0, 0, 0), (len(run), 70, 70, 0, 0, 1)]
    cores = [(run * 2, 0, turns, True)]
    if together:
        cores.append((run, 1, [(0, 7, 71, 0, 0, 0)], True))
    records = [(1, 0, 7, 70, 1), (1, 1, 7, 71, 1), (5, 0, 7, 70, 0), (6, 0, 70, 70, 1)]
    switches = b"".join(struct.pack("<QIIII", *record) for record in records)
    rows = {(0, pid, 70): 0 for pid in images}

    def take(thread: tuple[int, int, int], calls: Any) -> None:
        rows[thread] += len(calls["call"])

    takes = {thread: lambda calls, *_, thread=thread: take(thread, calls) for thread in rows}
    told = decode_threads(cores, images, PtConfig(6, 94, 3, 0, (0, 0), 0), takes, switches=switches, threads=2)
    assert [told[thread].stats["instructions"] for thread in rows] == [3, 4]
    assert [told[thread].stats["psb"] for thread in rows] == [1, 1]
    assert list(rows.values()) == [1, 1]


@pytest.mark.parametrize(("stays", "truncated"), [((0, 0), [0, 3]), ((0, 2), [1, 2, 3, 3])])
def test_calls_end_where_a_thread_has_come_from_another_core(stays: tuple[int, int], truncated: list[int]) -> None:
    image, start = Image(), 0x401000
    # call 0x401010; ...; syscall; ret
    image.code(0, start, bytes.fromhex("e80b000000") + b"\x90" * 11 + bytes.fromhex("0f05c3"))

    def at(header: int, address: int) -> bytes:
        return bytes([header]) + address.to_bytes(8, "little")

    first = bytes.fromhex("0282") * 8 + bytes.fromhex("0223 9901") + at(0xD1, start) + b"\x01"
    stream = first + at(0xD1, start + 0x12) + at(0xCD, start + 5) + at(0xDD, start + 6) + at(0xC1, 0)
    turns = [(0, 7, 70, 0, 0, stays[0]), (len(first), 7, 70, 0, 0, stays[1])]
    flags: list[int] = []
    takes = {(0, 7, 70): lambda calls, *_: flags.extend(memoryview(calls["flags"]))}
    decode_threads([(stream, 0, turns, True)], {7: image}, PtConfig(6, 94, 3, 0, (0, 0), 0), takes)
    # 1: began before; 2: not over.
    assert sorted(flag & 3 for flag in flags) == truncated


async def test_code_of_no_file_may_have_names(
    store: ObjectStore, store_session: StoreSession, program: Program, tmp_path: Path
) -> None:
    code = program.path.read_bytes()
    change = program.mapping(path="[jit]", build_id="", binary="", code_offset=4, code_size=len(code))
    await store_session(changes=[change], code=b"...." + code, binary=None)
    context = await opened(store, tmp_path)
    names = b""

    def take(_calls: object, functions: Any, _losses: object) -> None:
        nonlocal names
        names += bytes(memoryview(functions["name"][1]))

    context.decoder(7).decode(program.packets(), [(0, 1)], take)
    assert b"outer" in names and b"inner" in names


def test_losses_of_imports_tell_what_helps_there() -> None:
    known = decode_knob(
        "no-code: nothing is known at 0x1: /usr/bin/x: no file with build id 00 is there", imported=True
    )
    assert "--symbols" in known
    alone = decode_knob("no-code: nothing is known at 0x1: nothing was mapped there", imported=True)
    assert "packets alone with --image" in alone
    for why in ("[kernel]: no kernel code was given", "nothing was mapped there"):
        assert "--vmlinux" in decode_knob(f"no-kernel-code: nothing is known at 0xf: {why}", imported=True)
    module = decode_knob("no-kernel-code: nothing is known at 0xf: [net]: vmlinux has no code there", imported=True)
    assert "--kcore" in module
    program = decode_knob("no-kernel-code: nothing is known at 0xf: bpf_prog_1_count: no kernel code", imported=True)
    assert "intel_pt//u" in program
    assert "permille trace" not in decode_knob("overflow: the processor could not write", imported=True)
