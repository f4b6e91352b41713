"""Sessions of a real program under the real recorder, through allocator, controller, etcd and object store."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from permille.api.controller.v1 import controller_pb2 as pb
from permille.controller.domain import kmod_layout
from permille.controller.domain.elf_notes import names
from permille.controller.domain.pt_model import PMU
from permille.controller.domain.recording import Recording
from permille.controller.domain.switches.switch_records import parse
from permille.controller.domain.vpt_backend import VptBackend
from permille.mesh.embedded_etcd import EmbeddedEtcd
from permille.mesh.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermilleError,
    ResourceExhausted,
    Unavailable,
)
from permille.mesh.etcd import Etcd

STORED, STORING, RECORDING, FAILED = (
    pb.Session.STATE_STORED,
    pb.Session.STATE_STORING,
    pb.Session.STATE_RECORDING,
    pb.Session.STATE_FAILED,
)
# Eight times 02 82: Intel SDM volume 3, "Packet Stream Boundary (PSB) Packet".
PSB = bytes.fromhex("0282" * 8)

Target = subprocess.Popen[bytes]


def manifest_of(node: Any, session: pb.Session) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(stored(node, f"raw/{session_id(session)}/manifest.json"))
    return manifest


def stored(node: Any, key: str) -> bytes:
    return (Path(node.config.store_url.removeprefix("file://")) / key).read_bytes()


def decompressed(node: Any, key: str) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(stored(node, key))


def session_id(session: pb.Session) -> str:
    return session.name.rpartition("/")[2]


def journal(node: Any) -> list[str]:
    folder = node.config.state_dir / "controller" / node.config.node / "sessions"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def journal_emptied(node: Any) -> None:
    """The journal forgets a session when etcd has its end, a moment after a watcher saw it."""
    while journal(node):
        await asyncio.sleep(0.02)


async def test_what_a_program_did_is_in_the_store(node: Any, target: Target, target_program: Path) -> None:
    for request_id in (f"r{number}" for number in range(20)):
        wish = {"request_id": request_id, "purpose": "PROFILING", "retention_s": 3600, "left_out": 36}
        session = await node.trace(target.pid, **wish)
        assert (session.state, session.stop_reason) == (STORED, "PERIOD")
        # On a busy machine a thread may not run for as long as the period is.
        if session.raw_bytes > 10_000 and session.segments >= 3:
            break
    assert session.raw_bytes > 10_000 and session.segments >= 3 and session.expected_bytes > 0
    manifest = manifest_of(node, session)
    told = (manifest["session"], manifest["purpose"], manifest["request_id"])
    assert told == (session.name, "PROFILING", request_id)
    assert manifest["target"]["pids"] == [target.pid]
    assert manifest["retention_s"] == session.retention_s == 3600
    assert [note.partition(":")[0] for note in manifest["notes"]] == [
        "36 further processes of the target were not recorded"
    ]
    assert 280e6 < manifest["end_ns"] - manifest["start_ns"] < 60e9
    for segment in manifest["segments"]:
        raw = decompressed(node, segment["key"])
        assert raw.startswith(PSB)
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (segment["size_bytes"], segment["sha256"])
        assert segment["pid"] == target.pid and segment["epochs"][0][0] == 0
    assert sum(segment["size_bytes"] for segment in manifest["segments"]) == session.raw_bytes
    maps = json.loads(stored(node, manifest["maps"]["key"]))
    mapped = {change["path"]: change for change in maps["processes"][0]["changes"] if change["event"] == "map"}
    program = mapped[str(target_program)]
    assert decompressed(node, program["binary"]) == target_program.read_bytes()
    assert hashlib.sha256(decompressed(node, manifest["code"]["key"])).hexdigest() == manifest["code"]["sha256"]
    # Nothing stays behind, and the program can be recorded again.
    await journal_emptied(node)
    assert (await node.trace(target.pid)).state == STORED


async def test_a_session_keeps_how_its_memory_was_divided_and_why(node: Any, target: Target) -> None:
    session = await node.trace(target.pid)
    controller = await node.controller()
    kept = (await controller.GetSession(pb.GetSessionRequest(name=session.name))).session
    assert kept.unit == pb.BUFFER_UNIT_THREAD
    planned = {buffer.unit: (buffer.size_bytes, buffer.reason) for buffer in kept.plan}
    assert len(planned) >= 3 and all(size and reason for size, reason in planned.values())
    manifest = manifest_of(node, session)
    assert {buffer["unit"]: (buffer["size_bytes"], buffer["reason"]) for buffer in manifest["plan"]} == planned
    assert {segment["tid"] for segment in manifest["segments"]} <= set(planned)
    # A page of sessions would be too large with them.
    assert not (await controller.ListSessions(pb.ListSessionsRequest())).sessions[0].plan


@pytest.mark.parametrize("when", ["before", "while it is planned"])
async def test_of_processes_that_a_name_has_some_may_end_before_the_recording_begins(
    node: Any, target: Target, target_program: Path, when: str
) -> None:
    for request_id in (f"r{number}" for number in range(20)):
        with node.running(target_program) as other:
            await node.recordable(other)
            pids = [other.pid]
            if when == "before":
                other.kill()
                other.wait()
                with pytest.raises(NotFound, match=f"no process {other.pid}"):
                    await node.begin(target.pid, pids=pids)
            # With one buffer for each thread, their use is looked at for 100 ms first.
            session = await node.begin(target.pid, pids=pids, found=True, request_id=request_id)
            other.kill()
            other.wait()
            # On a busy machine the recording may have begun before it ended.
            begun = VptBackend(node.vpt_dir).find([target.pid], session_id(session))
            controller = await node.controller()
            told = (await controller.GetSession(pb.GetSessionRequest(name=session.name))).session
            in_time = not begun and told.state == pb.Session.STATE_PREPARING
            session = await node.end_of(session.name)
            if in_time:
                break
    assert in_time
    assert (session.state, list(session.pids)) == (STORED, [target.pid])
    assert manifest_of(node, session)["target"]["pids"] == [target.pid]
    # A repetition finds it.
    assert (await node.begin(target.pid, pids=pids, found=True, request_id=request_id)).name == session.name


async def test_where_none_is_left_of_a_name_its_processes_are_gone(node: Any, target: Target) -> None:
    target.kill()
    target.wait()
    with pytest.raises(NotFound, match=f"no process {target.pid}"):
        await node.begin(target.pid, found=True)


def departures(target: Target) -> dict[int, int]:
    """How often each thread has left a core, as the kernel counts."""
    told = {int(task.name): (task / "status").read_text() for task in Path(f"/proc/{target.pid}/task").iterdir()}
    return {tid: sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", text))) for tid, text in told.items()}


async def test_switch_records_are_of_the_target_and_lie_in_the_session(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=60_000)
    await node.until(session.name, RECORDING)
    # Each time that a thread leaves its core, and that it comes back, is a record.
    recording, before = part_of(node, target, session), departures(target)
    recorded: list[int] = []
    while len(recorded) < 3 or sum(recorded) < 300:
        await asyncio.sleep(0.02)
        now = departures(target)
        recorded = [more for one in recording.streams() if (more := now[one.tid] - before.get(one.tid, 0)) > 0]
    await (await node.controller()).StopSession(pb.StopSessionRequest(name=session.name))
    manifest = manifest_of(node, await node.end_of(session.name))
    switches = manifest["switches"]
    if switches["unavailable"]:
        pytest.skip(switches["unavailable"])
    records = parse(stored(node, switches["key"]))
    assert len(records) == switches["count"]
    assert {record.pid for record in records} == {target.pid}
    clock = manifest["clock"]
    inside = [record for record in records if clock["tsc0"] <= record.time <= clock["tsc1"]]
    assert len(inside) > 300
    assert len({segment["tid"] for segment in manifest["segments"]} & {record.tid for record in inside}) >= 3
    assert [record.time for record in records] == sorted(record.time for record in records)


async def test_a_thread_that_is_switched_out_executes_nothing(node: Any, target: Target) -> None:
    """The two clocks agree: a segment begins and ends while its thread is on a core, within the stated bound."""
    manifest = manifest_of(node, await node.trace(target.pid, period_ms=500))
    if manifest["switches"]["unavailable"]:
        pytest.skip(manifest["switches"]["unavailable"])
    clock = manifest["clock"]
    ticks_per_us = (clock["tsc1"] - clock["tsc0"]) / (clock["ns1"] - clock["ns0"]) * 1000
    records = parse(stored(node, manifest["switches"]["key"]))
    for segment in manifest["segments"]:
        own = [record for record in records if record.tid == segment["tid"]]
        stays = [(a.time, b.time) for a, b in itertools.pairwise(own) if (a.operation, b.operation) == (1, 0)]
        last = segment["last_tsc"]
        if not stays or not stays[0][0] < last < stays[-1][1]:
            continue
        distance = min(max(begin - last, last - end, 0) for begin, end in stays)
        assert distance / ticks_per_us < 100


async def test_the_states_are_seen_in_order(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=60_000)
    controller = await node.controller()
    states: list[pb.Session.State.ValueType] = []
    async for change in controller.WatchSession(pb.WatchSessionRequest(name=session.name)):
        states.append(change.session.state)
        if states.count(RECORDING) == 1 and states[-1] == RECORDING:
            await controller.StopSession(pb.StopSessionRequest(name=session.name))
    assert states == sorted(states)
    assert set(states) >= {RECORDING, STORED}
    listed = await controller.ListSessions(pb.ListSessionsRequest())
    assert [one.name for one in listed.sessions] == [session.name]


async def test_fifty_starts_with_one_request_id_are_one_session(node: Any, target: Target) -> None:
    starts = await asyncio.gather(*(node.begin(target.pid, request_id="same") for _ in range(50)))
    assert len({session.name for session in starts}) == 1
    assert (await node.end_of(starts[0].name)).state == STORED
    with pytest.raises(AlreadyExists):
        await node.begin(target.pid, request_id="same", period_ms=1)


async def test_fifty_starts_of_one_target_are_one_session_and_clear_refusals(node: Any, target: Target) -> None:
    starts = await asyncio.gather(
        *(node.begin(target.pid, request_id=f"r{n}", period_ms=60_000) for n in range(50)), return_exceptions=True
    )
    (winner,) = [start for start in starts if isinstance(start, pb.Session)]
    for refused in starts:
        if isinstance(refused, BaseException):
            assert isinstance(refused, FailedPrecondition) and refused.reason == "ALREADY_TRACED"
            assert winner.name in refused.message
    await (await node.controller()).StopSession(pb.StopSessionRequest(name=winner.name))
    assert (await node.end_of(winner.name)).state == STORED
    listed = await (await node.controller()).ListSessions(pb.ListSessionsRequest())
    assert [one.name for one in listed.sessions] == [winner.name]
    await journal_emptied(node)


def part_of(node: Any, target: Target, session: pb.Session) -> Recording:
    """What the recorder itself says of a session, without the controller."""
    (recording,) = VptBackend(node.vpt_dir).find([target.pid], session_id(session))
    return recording


async def test_a_watcher_learns_how_far_each_thread_is_while_it_records(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=30_000)
    controller = await node.controller()
    seen: list[pb.Session] = []
    stopped = False
    async for change in controller.WatchSession(pb.WatchSessionRequest(name=session.name)):
        seen.append(change.session)
        written = {sum(core.written_bytes for core in one.cores) for one in seen if one.cores}
        # Each thread has a buffer from when it runs.
        if len(written) > 3 and len(change.session.cores) >= 3 and not stopped:
            stopped = True
            await controller.StopSession(pb.StopSessionRequest(name=session.name))
    recording = [one for one in seen if one.state == RECORDING and one.cores]
    for one in recording:
        assert 0 < one.remaining_ms <= 30_000
        assert {core.unit for core in one.cores} == {pb.BUFFER_UNIT_THREAD}
        assert all(0 <= core.written_bytes <= core.buffer_bytes for core in one.cores)
    assert len(recording[-1].cores) >= 3
    remaining = [one.remaining_ms for one in recording]
    assert remaining == sorted(remaining, reverse=True)
    # The last one says what is in the archive.
    last = seen[-1]
    assert (last.state, last.remaining_ms) == (STORED, 0)
    segments = manifest_of(node, last)["segments"]
    assert {core.number: core.written_bytes for core in last.cores} == {
        segment["tid"]: segment["size_bytes"] for segment in segments
    }
    assert not (await controller.GetSession(pb.GetSessionRequest(name=session.name))).session.cores


async def test_who_wants_changes_only_hears_of_nothing_else(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=1000)
    request = pb.WatchSessionRequest(name=session.name, changes_only=True)
    seen = [change.session async for change in (await node.controller()).WatchSession(request)]
    assert seen[-1].state == STORED and not any(one.cores for one in seen)


async def test_a_buffer_that_is_full_says_so_while_it_records_and_afterwards(node: Any, target: Target) -> None:
    # The smallest buffers there are.
    session = await node.begin(target.pid, period_ms=60_000, budget_bytes=2 << 20)
    controller = await node.controller()
    stopped = False
    async for change in controller.WatchSession(pb.WatchSessionRequest(name=session.name)):
        full = [core for core in change.session.cores if core.full]
        if full and not stopped:
            assert all(core.stopped for core in full)
            stopped = True
            await controller.StopSession(pb.StopSessionRequest(name=session.name))
    ended = (await controller.GetSession(pb.GetSessionRequest(name=session.name))).session
    assert ended.full_buffers == sum(segment["full"] for segment in manifest_of(node, ended)["segments"]) >= 1


async def test_threads_that_found_no_buffer_are_counted(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=60_000)
    controller = await node.controller()
    pipe: Any = target.stdin
    born = stopped = False
    async for change in controller.WatchSession(pb.WatchSessionRequest(name=session.name)):
        if change.session.cores and not born:
            born = True
            # 16 buffers are kept for those that come later.
            pipe.write(bytes(20))
            pipe.flush()
        if len(change.session.cores) == 4 + 16 and not stopped:
            stopped = True
            while part_of(node, target, session).unbuffered_threads < 4:
                await asyncio.sleep(0.02)
            await controller.StopSession(pb.StopSessionRequest(name=session.name))
    ended = (await controller.GetSession(pb.GetSessionRequest(name=session.name))).session
    (note,) = [note for note in manifest_of(node, ended)["notes"] if "threads" in note]
    assert note == "4 threads that began during the session were not recorded: there was no buffer left for them"


async def test_a_session_can_be_stopped_early(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=30_000)
    await node.until(session.name, RECORDING)
    # Also to who asks for nothing of it.
    described = (await (await node.controller()).GetNode(pb.GetNodeRequest())).node
    assert list(described.recording) == [session.name]
    await (await node.controller()).StopSession(pb.StopSessionRequest(name=session.name))
    ended = await node.end_of(session.name)
    assert (ended.state, ended.stop_reason) == (STORED, "STOPPED")
    assert ended.end_time.ToNanoseconds() - ended.start_time.ToNanoseconds() < 10e9


@pytest.mark.parametrize("how", ["exit", "kill"])
async def test_what_a_target_did_before_it_ended_is_stored(node: Any, target: Target, how: str) -> None:
    session = await node.begin(target.pid, period_ms=30_000)
    await node.has_something(session)
    if how == "kill":
        target.kill()
    else:
        assert target.stdin is not None
        target.stdin.close()
    await asyncio.to_thread(target.wait)
    ended = await node.end_of(session.name)
    assert (ended.state, ended.stop_reason) == (STORED, "TARGET_EXITED")
    manifest = manifest_of(node, ended)
    assert ended.raw_bytes > 10_000
    assert manifest["clock"]["tsc1"] > manifest["clock"]["tsc0"]
    assert not (node.vpt_dir / str(target.pid)).exists()


async def test_the_controllers_death_ends_nothing_early_and_loses_nothing(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=4000)
    await node.until(session.name, RECORDING)
    await node.kill("controller")
    recording = part_of(node, target, session)
    while not recording.finished():
        await asyncio.sleep(0.05)
    await node.start("controller")
    ended = await node.end_of(session.name)
    assert (ended.state, ended.stop_reason) == (STORED, "CONTROLLER_LOST")
    manifest = manifest_of(node, ended)
    assert manifest["end_ns"] - manifest["start_ns"] > 3.9e9
    assert ended.raw_bytes > 10_000
    assert "the controller ended" in manifest["switches"]["unavailable"]
    await journal_emptied(node)
    assert (await node.trace(target.pid)).state == STORED


async def test_a_controller_that_is_back_before_the_period_is_over_sees_its_end(node: Any, target: Target) -> None:
    # On a busy machine its start takes long.
    for period_ms in (8000, 16_000, 32_000, 60_000):
        session = await node.begin(target.pid, period_ms=period_ms)
        await node.until(session.name, RECORDING)
        await node.kill("controller")
        await node.start("controller")
        found = VptBackend(node.vpt_dir).find([target.pid], session_id(session))
        in_time = any(not recording.finished() for recording in found)
        ended = await node.end_of(session.name)
        if in_time:
            break
    assert in_time
    assert (ended.state, ended.stop_reason) == (STORED, "PERIOD")


async def test_etcd_away_refuses_new_work_and_the_running_session_is_stored(
    node: Any, target: Target, etcd: Etcd, etcd_server: EmbeddedEtcd
) -> None:
    session = await node.begin(target.pid, period_ms=4000)
    await node.until(session.name, RECORDING)
    assert etcd_server.process is not None
    etcd_server.process.kill()
    await etcd_server.wait()
    with pytest.raises(Unavailable):
        await node.begin(target.pid, request_id="later")
    await asyncio.sleep(1)
    await etcd_server.start()
    ended = await node.end_of(session.name)
    assert (ended.state, ended.stop_reason) == (STORED, "PERIOD")
    while (kept := await etcd.get(f"/permille/v1/{session.name}")) is None or b"STORED" not in kept.value:
        await asyncio.sleep(0.05)
    assert kept.lease == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
async def test_a_full_store_keeps_the_session_until_there_is_room(node: Any, target: Target) -> None:
    store = node.config.state_dir / "store"
    store.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", store], check=True)
    try:
        session = await node.begin(target.pid)
        waiting = await node.until(session.name, STORING, with_reason=True)
        assert waiting.error_message and waiting.error_help
        # The target is free meanwhile.
        assert journal(node) == [session_id(session)]
        subprocess.run(["mount", "-o", "remount,size=64m", store], check=True)
        ended = await node.end_of(session.name)
        assert (ended.state, ended.error_reason) == (STORED, "")
        assert manifest_of(node, ended)["segments"]
    finally:
        subprocess.run(["umount", store], check=True)


async def test_a_target_that_is_not_there_or_not_ready_is_refused(node: Any, target: Target) -> None:
    with pytest.raises(NotFound, match="no process 4000000"):
        await node.begin(4_000_000)
    with pytest.raises(FailedPrecondition, match="was not started ready to be recorded") as refused:
        await node.begin(os.getpid())
    assert refused.value.reason == "NOT_RECORDABLE" and "permille run" in refused.value.help


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"period_ms": 10**9}, InvalidArgument),
        ({"period_ms": -400}, InvalidArgument),
        ({"purpose": "FUN"}, InvalidArgument),
        ({"budget_bytes": 1 << 50}, ResourceExhausted),
        ({"options": pb.TraceOptions(snapshot=True)}, InvalidArgument),
    ],
)
async def test_an_impossible_wish_is_refused(
    node: Any, target: Target, wish: dict[str, object], error: type[PermilleError]
) -> None:
    with pytest.raises(error) as refused:
        await node.begin(target.pid, **wish)
    assert refused.value.help
    assert journal(node) == []


async def test_a_budget_too_small_for_the_threads_fails_the_session_with_the_way_out(node: Any, target: Target) -> None:
    session = await node.trace(target.pid, budget_bytes=1 << 20)
    assert (session.state, session.error_reason) == (FAILED, "BUDGET_TOO_SMALL")
    assert "budget_bytes" in session.error_help
    assert (await node.trace(target.pid)).state == STORED


async def test_the_node_says_what_it_can_do_and_how_to_start_a_program(
    node: Any, target: Target, target_program: Path
) -> None:
    controller = await node.controller()
    description = (await controller.GetNode(pb.GetNodeRequest(pids=[os.getpid(), target.pid, 4_000_000]))).node
    capabilities = {capability.name: capability for capability in description.capabilities}
    assert set(capabilities) >= {"intel_pt", "kmod", "bpf", "qemu", "vpt", "etcd", "store", "shared_memory"}
    assert all(capability.available or capability.fix for capability in capabilities.values())
    assert all(capabilities[name].available for name in ("qemu", "vpt", "etcd", "store"))
    assert [process.pid for process in description.processes] == [target.pid]
    assert [process.pid for process in description.other_processes] == [os.getpid()]
    told = [
        (process.build_id, process.binary_bytes) for process in (*description.processes, *description.other_processes)
    ]
    programs = (target_program, Path(sys.executable))
    assert told == [(names(program)[0], program.stat().st_size) for program in programs]
    assert all(build_id for build_id, _ in told)
    with subprocess.Popen([*description.launch_prefix, target_program], stdin=subprocess.PIPE) as second:
        await node.recordable(second)
        second.communicate(b"")


async def test_the_node_says_where_it_is(node: Any) -> None:
    await node.kill("controller")
    node.settings = ["--controller-zone", "east"]
    await node.start("controller")
    assert (await (await node.controller()).GetNode(pb.GetNodeRequest(), timeout=180)).node.zone == "east"


async def test_a_target_is_given_back_before_its_packets_are_packed_and_the_next_controller_packs_them(
    node: Any, target: Target
) -> None:
    await node.kill("controller")
    # Which takes longer than anybody waits.
    node.settings = ["--controller-cpu-share", "0.00001"]
    await node.start("controller")
    first = await node.begin(target.pid, period_ms=60_000)
    await node.stop_when_it_has_something(first)
    while True:
        try:
            second = await node.begin(target.pid, period_ms=60_000)
            break
        except FailedPrecondition as error:
            # Until what was recorded is on disk.
            assert error.reason == "ALREADY_TRACED" and first.name in error.message
            await asyncio.sleep(0.01)
    await node.stop_when_it_has_something(second)
    both = [first, second]
    for session in both:
        await node.until(session.name, STORING)
    folders = [node.config.state_dir / "controller" / node.config.node / "sessions" / session_id(one) for one in both]
    while not all((folder / "spooled.json").exists() for folder in folders):
        await asyncio.sleep(0.01)
    assert not any((folder / "manifest.json").exists() for folder in folders)
    await node.kill("controller")
    node.settings = []
    await node.start("controller")
    for session in [await node.end_of(session.name) for session in both]:
        assert (session.state, session.stop_reason) == (STORED, "STOPPED")
        segments = manifest_of(node, session)["segments"]
        assert sum(segment["size_bytes"] for segment in segments) == session.raw_bytes > 10_000
        for segment in segments:
            raw = decompressed(node, segment["key"])
            assert hashlib.sha256(raw).hexdigest() == segment["sha256"] and raw.startswith(PSB)


async def test_two_targets_are_recorded_at_once(node: Any, target: Target, target_program: Path) -> None:
    with node.running(target_program) as other:
        await node.recordable(other)
        both = await asyncio.gather(node.trace(target.pid), node.trace(other.pid))
    assert [session.state for session in both] == [STORED, STORED]
    assert [list(session.pids) for session in both] == [[target.pid], [other.pid]]


async def test_one_session_can_have_two_processes(node: Any, target: Target, target_program: Path) -> None:
    with node.running(target_program) as other:
        await node.recordable(other)
        session = await node.trace(target.pid, pids=[other.pid])
        assert session.state == STORED
        assert {segment["pid"] for segment in manifest_of(node, session)["segments"]} == {target.pid, other.pid}


async def test_a_drained_controller_leaves_its_sessions_to_the_next(node: Any, target: Target) -> None:
    session = await node.begin(target.pid, period_ms=4000)
    await node.until(session.name, RECORDING)
    await node.kill("controller", signal.SIGTERM)
    await node.start("controller")
    assert (await node.end_of(session.name)).state == STORED


async def test_what_killed_programs_left_is_removed(node: Any, target: Target) -> None:
    target.kill()
    await asyncio.to_thread(target.wait)
    assert (node.vpt_dir / str(target.pid)).exists()
    await node.kill("controller")
    await node.start("controller")
    while (node.vpt_dir / str(target.pid)).exists():
        await asyncio.sleep(0.05)


@pytest.mark.skipif(PMU.exists() or Path(kmod_layout.DEVICE).exists(), reason="this machine has Intel PT")
async def test_back_ends_that_do_not_work_here_are_refused_with_the_reason(node: Any, target: Target) -> None:
    controller = await node.controller()
    for backend, name in ((pb.BACKEND_KMOD, "kmod"), (pb.BACKEND_PERF, "perf")):
        with pytest.raises(FailedPrecondition) as refused:
            await node.begin(target.pid, backend=backend)
        assert refused.value.reason == "BACKEND_UNAVAILABLE"
        request = pb.GetNodeRequest(pids=[target.pid, os.getpid()], backend=backend)
        description = (await controller.GetNode(request)).node
        (found,) = [capability for capability in description.capabilities if capability.name == name]
        assert not found.available and found.detail in refused.value.message
        assert not description.processes
        assert {process.pid for process in description.other_processes} == {target.pid, os.getpid()}
    with pytest.raises(InvalidArgument) as unknown:
        await node.begin(target.pid, backend=pb.BACKEND_IMPORTED)
    assert unknown.value.reason == "UNKNOWN_BACKEND"
    session = await node.trace(target.pid, backend=pb.BACKEND_VPT)
    assert (session.state, session.backend) == (STORED, pb.BACKEND_VPT)
