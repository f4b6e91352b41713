"""Rings of perf as they are read: whatever they hold where they wrap, and what this machine's kernel writes."""

from __future__ import annotations

import errno
import mmap
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from permille.controller.domain import perf_backend, perf_session
from permille.controller.domain import perf_layout as perf
from permille.controller.domain.image_watch import ImageWatch
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.perf_backend import PerfBackend, PerfRecording
from permille.controller.domain.perf_clock import PerfClock, ticks
from permille.controller.domain.perf_events import config_bits, event_of, open_event, refused
from permille.controller.domain.perf_layout import Attr, AttrFlags, Page, Record
from permille.controller.domain.perf_newest import PSB, begins_at, newest, wrapped
from permille.controller.domain.perf_records import PerfRecord, parse, take
from permille.controller.domain.pt_model import PMU
from permille.controller.domain.recording import CoreBuffers, RecordingConfig
from permille.controller.domain.session import TraceOptions
from permille.controller.domain.switches import switch_records
from permille.mesh.errors import FailedPrecondition, ResourceExhausted

PAGE = mmap.PAGESIZE


@given(st.lists(st.lists(st.binary(max_size=72), max_size=6), max_size=12), st.integers(0, 1 << 40))
def test_a_ring_gives_every_record_once_wherever_it_wraps(portions: list[list[bytes]], begin: int) -> None:
    size, head = 1 << 10, begin * 8
    ring = mmap.mmap(-1, PAGE + size)
    for field, value in (("data_offset", PAGE), ("data_size", size), ("data_head", head), ("data_tail", head)):
        struct.pack_into("<Q", ring, getattr(Page, field).offset, value)
    for portion in portions:
        expected = []
        for body in portion:
            whole = body + bytes(-len(body) % 8)
            record = struct.pack("<IHH", 3, 0, 8 + len(whole) + 24) + whole + struct.pack("<IIQII", 1, 2, head, 3, 0)
            for byte, value in enumerate(record):
                ring[PAGE + (head + byte) % size] = value
            expected.append(PerfRecord(3, 0, whole, 1, 2, head, 3))
            head += len(record)
        struct.pack_into("<Q", ring, Page.data_head.offset, head)
        assert list(parse(take(ring))) == expected
        assert take(ring) == b""
        assert struct.unpack_from("<Q", ring, Page.data_tail.offset) == (head,)


def written_over(size: int, written: bytes) -> tuple[mmap.mmap, int]:
    """An AUX area that is overwritten, as the kernel leaves it: what it holds, and `aux_head`."""
    area = mmap.mmap(-1, size)
    for at in range(0, len(written), size):
        area[: len(written[at : at + size])] = written[at : at + size]
    return area, len(written) % size


def packets_until(end: int) -> bytes:
    """A PSB now and then and no zeros between, where nothing else looks like one."""
    begin = end % 97
    return (bytes([7]) * begin + (PSB + bytes([9]) * (97 - len(PSB))) * (end // 97))[:end]


@given(st.integers(0, 4 * PAGE), st.sampled_from([PAGE, 2 * PAGE]))
@example(0, PAGE)
@example(PAGE, PAGE)
@example(2 * PAGE, 2 * PAGE)
def test_what_was_written_last_is_kept_from_its_first_psb_on_wherever_the_area_was_passed(end: int, size: int) -> None:
    written = packets_until(end)
    area, head = written_over(size, written)
    kept = b"".join(area[begin:stop] for begin, stop in newest(area, head))
    assert wrapped(area, head) == (end >= size)
    there = written[-size:] if end >= size else written
    assert kept == (there[there.index(PSB) :] if end >= size else there)


def test_a_psb_that_the_areas_end_divides_is_one() -> None:
    for divided in range(len(PSB) + 1):
        area, head = written_over(PAGE, b"\1" * (2 * PAGE - divided) + PSB + b"\3" * 50)
        kept = b"".join(area[begin:stop] for begin, stop in newest(area, head))
        assert kept == PSB + b"\3" * 50


def test_a_psb_deep_in_a_large_area_is_found_whole() -> None:
    size = 1 << 18
    for begin in (1 << 16, 1 << 17):
        for before in range(begin - len(PSB), begin + 1):
            area, head = written_over(size, (b"\1" * before + PSB).ljust(size, b"\3") + b"\4" * 100)
            assert newest(area, head) == [(before, size), (0, 100)]


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 55))
def test_what_is_kept_begins_when_its_first_psb_says(earlier: int, later: int) -> None:
    tsc = earlier + later
    assert begins_at(PSB + b"\x19" + (tsc % (1 << 56)).to_bytes(7, "little") + b"\0", earlier) == tsc
    # Other packets, or a stream without any: what is known is that it was later.
    assert begins_at(PSB + b"\x02\x03" + bytes(10), earlier) == earlier
    assert begins_at(PSB + b"\x19", earlier) == begins_at(b"\x19" * 40, earlier) == earlier


def test_an_area_without_a_psb_is_kept_whole_in_the_order_of_writing() -> None:
    area, head = written_over(PAGE, b"\1" * PAGE + b"\3" * 50)
    assert newest(area, head) == [(50, PAGE), (0, 50)]
    # Of one that was overwritten itself the end is no PSB.
    area, head = written_over(PAGE, b"\1" + PSB + b"\5" * (PAGE - 1 - len(PSB)) + b"\3" * 3)
    assert newest(area, head) == [(3, PAGE), (0, 3)]


@pytest.fixture
def pmu(tmp_path: Path) -> Path:
    """The driver's description of itself, as in arch/x86/events/intel/pt.c."""
    places = {"tsc": "10", "mtc": "9", "mtc_period": "14-17", "cyc": "1", "psb_period": "24-27", "noretcomp": "11"}
    (tmp_path / "format").mkdir()
    (tmp_path / "type").write_text("8\n")
    for name, bits in places.items():
        (tmp_path / "format" / name).write_text(f"config:{bits}\n")
    return tmp_path


@pytest.fixture
def attr(pmu: Path) -> Attr:
    """What the back end asks for, of an event of the kernel's that counts nothing."""
    attr = event_of(TraceOptions(), pmu)
    attr.type, attr.config = perf.TYPE_SOFTWARE, perf.COUNT_SW_DUMMY
    attr.flags &= ~AttrFlags.INHERIT
    try:
        os.close(open_event(attr, 0, -1))
    except OSError as error:
        pytest.skip(f"perf_event_open is not allowed here: {error.strerror}")
    return attr


@pytest.fixture
def ring(attr: Attr) -> Iterator[mmap.mmap]:
    """This thread's records."""
    fd = open_event(attr, 0, -1)
    mapped = mmap.mmap(fd, PAGE * 9, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    ioctl(fd, perf.IOC_ENABLE, 0)
    yield mapped
    mapped.close()
    os.close(fd)


def of_kind(ring: mmap.mmap, kind: Record) -> list[PerfRecord]:
    return [record for record in parse(take(ring)) if record.kind == kind]


def switched_away() -> int:
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def away(ring: mmap.mmap) -> tuple[int, int]:
    """How often records since the last call and the kernel, since ever, say that this thread left its core."""
    told = 0
    while True:
        counted, switches = switched_away(), of_kind(ring, Record.SWITCH)
        told += sum(1 for record in switches if record.misc & perf.SWITCH_OUT)
        assert {(record.pid, record.tid) for record in switches} <= {(os.getpid(), threading.get_native_id())}
        assert [record.time for record in switches] == sorted(record.time for record in switches)
        if counted == switched_away():
            return told, counted


def test_every_switch_of_a_thread_is_a_record_also_where_the_ring_wraps(ring: mmap.mmap) -> None:
    told, (_, before) = 0, away(ring)
    for _ in range(120):
        # The ring has room for a thousand, and a busy machine takes the core away in between.
        for _ in range(25):
            time.sleep(0.0001)
        more, counted = away(ring)
        told += more
    assert told == counted - before >= 3000


def test_names_forks_and_code_that_is_mapped_are_records(ring: mmap.mmap, tmp_path: Path) -> None:
    own = Path("/proc/thread-self/comm")
    name = own.read_text()
    own.write_text("renamed")
    (renamed,) = of_kind(ring, Record.COMM)
    own.write_text(name.strip())
    pid, tid = struct.unpack_from("<II", renamed.body)
    assert (pid, tid, renamed.body[8:].split(b"\0")[0]) == (os.getpid(), threading.get_native_id(), b"renamed")
    take(ring)
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    assert [struct.unpack_from("<I", record.body)[0] for record in of_kind(ring, Record.FORK)] == [child]
    library = tmp_path / "code.so"
    library.write_bytes(bytes(PAGE))
    with library.open("rb") as file:
        mmap.mmap(file.fileno(), PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    (mapped,) = of_kind(ring, Record.MMAP2)
    assert bytes(library) in mapped.body


def test_records_that_found_no_room_are_counted(ring: mmap.mmap) -> None:
    before, written = switched_away(), 0
    while switched_away() - before < 2 * 8 * PAGE // 32:
        time.sleep(0.0001)
    data = take(ring)
    assert len(data) <= 8 * PAGE
    written = sum(1 for _ in parse(data))
    while not (lost := of_kind(ring, Record.LOST)):
        time.sleep(0.0001)
    _, count = struct.unpack_from("<QQ", lost[0].body)
    assert written > 0 and count > 0


def test_all_threads_of_a_process_and_what_it_starts_are_recorded_until_the_last_one_ends(
    attr: Attr, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The event counts nothing, so it has no packets.
    monkeypatch.setattr(perf_session, "buffer_of", lambda file, ring, size, *, snapshot: mmap.mmap(-1, size))
    attr.flags |= AttrFlags.INHERIT
    program = """if True:
        import os, threading
        go = threading.Event()
        threading.Thread(target=go.wait).start()
        print(flush=True)
        input()
        go.set()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    """
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdin is not None and target.stdout is not None
        target.stdout.readline()
        threads = {int(task.name) for task in Path(f"/proc/{target.pid}/task").iterdir()}
        session = perf_session.PerfSession(attr, [target.pid], dict.fromkeys(os.sched_getaffinity(0), 5 << 12))
        assert set(session.buffers.values()) == {4 << 12}
        session.enable()
        assert not session.all_exited()
        target.stdin.write(b"\n")
        target.stdin.flush()
        target.wait()
    assert session.all_exited()
    session.disable()
    records = list(session.take())
    session.close()
    arrived = {record.tid for record in records if record.kind == Record.SWITCH and not record.misc & perf.SWITCH_OUT}
    (child,) = (struct.unpack_from("<I", record.body)[0] for record in records if record.kind == Record.FORK)
    assert arrived == threads | {child} and len(threads) == 2


def test_what_is_asked_for_stands_where_rtit_ctl_has_it(pmu: Path) -> None:
    attr = event_of(TraceOptions(psb_freq=3, mtc_freq=5, return_compression=False), pmu)
    assert (attr.type, attr.config) == (8, 1 << 10 | 1 << 9 | 5 << 14 | 1 << 1 | 3 << 24 | 1 << 11)
    assert event_of(TraceOptions(psb_freq=0, mtc=False, cyc=False), pmu).config == 1 << 10
    with pytest.raises(NotOnThisMachine, match="does not offer ptw"):
        config_bits(pmu, "ptw", 1)


def test_without_a_driver_the_back_end_says_so(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    for flags, because in (("intel_pt", "its kernel offers no intel_pt"), ("sse", "has no Intel PT")):
        cpuinfo.write_text(f"flags\t\t: fpu {flags}\n")
        with pytest.raises(NotOnThisMachine, match=f"^perf: not on this machine, because .*{because}") as refused:
            event_of(TraceOptions(), tmp_path, cpuinfo)
        assert "vpt" not in refused.value.help


@pytest.mark.skipif(PMU.exists(), reason="this machine has Intel PT")
def test_this_machine_is_refused_for_what_it_lacks() -> None:
    with pytest.raises(NotOnThisMachine, match=r"no intel_pt|no Intel PT"):
        PerfBackend().require()


def test_what_a_machine_lacks_is_told_from_what_is_busy_now() -> None:
    def told(number: int) -> Exception:
        return refused(OSError(number, os.strerror(number)))

    denied = told(errno.EACCES)
    assert isinstance(denied, NotOnThisMachine) and "perf_event_paranoid is" in denied.message
    assert isinstance(told(errno.EINVAL), NotOnThisMachine)
    busy = told(errno.EBUSY)
    assert isinstance(busy, FailedPrecondition) and not isinstance(busy, NotOnThisMachine) and busy.retry_after_s
    assert isinstance(told(errno.EMFILE), ResourceExhausted)


@given(st.integers(0, 1 << 55))
def test_a_time_of_perf_is_the_tsc_it_was_made_of(tsc: int) -> None:
    page = Page(time_shift=31, time_mult=1_076_264_588, time_zero=18_433_473_881_008_870_804)
    ns = (page.time_zero + (tsc * page.time_mult >> page.time_shift)) % (1 << 64)
    assert abs(ticks(ns, page) - tsc) <= 2


def test_the_clock_tells_the_tsc_or_that_the_kernel_does_not_keep_time_by_it() -> None:
    try:
        clock = PerfClock()
    except NotOnThisMachine as error:
        assert "TSC" in error.message or "does not let" in error.message
        return
    (tsc0, ns0), (tsc1, ns1) = clock.now(), clock.now()
    clock.close()
    assert 0 < tsc0 < tsc1 and ns0 <= ns1


class GivenRecords(perf_session.PerfSession):
    """Of one core whose buffer of a page is half full."""

    def __init__(self, records: list[PerfRecord]) -> None:
        self._records = records

    @property
    def buffers(self) -> dict[int, int]:
        return {0: PAGE}

    def enable(self) -> None: ...
    def disable(self) -> None: ...
    def all_exited(self) -> bool:
        return True

    def take(self) -> Iterator[PerfRecord]:
        while self._records:
            yield self._records.pop(0)

    def written(self, core: int) -> int:
        return self.buffers[core] // 2

    def overwrites(self, core: int) -> bool:
        return False

    def kept(self, core: int) -> list[tuple[int, int]]:
        return [(0, self.written(core))]


class HalfNanosecondTicks(PerfClock):
    def __init__(self) -> None: ...
    def tsc(self, ns: int) -> int:
        return 2 * ns

    def now(self) -> tuple[int, int]:
        return 2 * time.monotonic_ns(), time.time_ns()


class NotAllowed(HalfNanosecondTicks):
    def __init__(self) -> None:
        raise NotOnThisMachine("perf", "the kernel does not let this user", "be another one")


UNWATCHED = ImageWatch([], NotAllowed)


def perf_events() -> int:
    """How many this process has open."""
    files = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return sum("perf_event" in str(file.readlink()) for file in files)


def test_a_recording_that_cannot_begin_leaves_no_event_behind(attr: Attr, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(HalfNanosecondTicks):
        closed = False

        def close(self) -> None:
            Clock.closed = True

    def refuse_to_enable(file: int, command: int, argument: int) -> int:
        if command != perf.IOC_ENABLE:
            return ioctl(file, command, argument)
        assert perf_events() > before
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(perf_session, "ioctl", refuse_to_enable)
    # The event counts nothing, so it has no packets.
    monkeypatch.setattr(perf_session, "buffer_of", lambda file, ring, size, *, snapshot: mmap.mmap(-1, size))
    for name, replacement in (("event_of", lambda options: attr), ("PerfClock", Clock)):
        monkeypatch.setattr(perf_backend, name, replacement)
    before = perf_events()
    sizes = dict.fromkeys(os.sched_getaffinity(0), 4 << 12)
    with pytest.raises(FailedPrecondition, match="somebody else records with intel_pt") as refusal:
        PerfBackend().begin(RecordingConfig("s", (os.getpid(),), 1000, TraceOptions(), CoreBuffers(sizes)))
    assert (refusal.value.reason, bool(refusal.value.help)) == ("RECORDER_REFUSED", True)
    assert perf_events() == before
    assert Clock.closed


def test_a_clock_whose_page_cannot_be_mapped_leaves_no_event_behind(
    attr: Attr, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beyond_the_limit(*arguments: object) -> mmap.mmap:
        assert perf_events() == before + 1
        raise OSError(errno.EPERM, "Operation not permitted")

    before = perf_events()
    monkeypatch.setattr(mmap, "mmap", beyond_the_limit)
    with pytest.raises(NotOnThisMachine, match="does not let this user"):
        PerfClock()
    assert perf_events() == before


def test_records_become_switch_records_names_and_what_is_known_to_be_missing(tmp_path: Path) -> None:
    # Numbers that no process has.
    me, child, gone = 1 << 30, 1 << 29, 0xFFFFFFFF

    def record(kind: Record, body: bytes, ns: int, misc: int = 0, pid: int = me) -> PerfRecord:
        return PerfRecord(kind, misc, body, pid, pid + 1, ns, 0)

    records = [
        record(Record.SWITCH, b"", 10),
        record(Record.SWITCH, b"", 30, perf.SWITCH_OUT),
        record(Record.SWITCH, b"", 40, perf.SWITCH_OUT, gone),
        record(Record.SWITCH, b"", 50),
        # It ends where it is.
        record(Record.EXIT, struct.pack("<IIIIQ", me, me, me + 1, me, 60), 60),
        record(Record.COMM, struct.pack("<II8s", me, me + 1, b"worker"), 11),
        record(Record.FORK, struct.pack("<IIIIQ", child, me, child, me, 12), 12),
        record(Record.LOST, struct.pack("<QQ", 1, 7), 13),
        record(Record.AUX, struct.pack("<QQQ", 0, 8, perf.AUX_TRUNCATED), 14),
        record(Record.AUX, struct.pack("<QQQ", 8, 8, perf.AUX_PARTIAL), 15),
    ]
    recording = PerfRecording(GivenRecords(records), HalfNanosecondTicks(), [me], 1000, UNWATCHED)
    assert recording.finished() and recording.exited()
    recording.collect(tmp_path / "switches")
    own, (stream,) = recording.own_switches(tmp_path / "switches"), recording.streams()
    assert list(switch_records.records_of(own.records)) == [
        (20, 0, me, me + 1, 1),
        (60, 0, me, me + 1, 0),
        (100, 0, me, me + 1, 1),
        (120, 0, me, me + 1, 0),
    ]
    assert (own.counts.count, own.counts.dropped, own.thread_names[me, me + 1]) == (4, 7, "worker")
    assert own.counts.unavailable == "core 0: KVM had the trace unit for a time"
    assert (stream.core, stream.size_bytes, stream.buffer_bytes, stream.full) == (0, PAGE // 2, PAGE, True)
    assert (stream.first_tsc, stream.last_tsc, stream.counters["arrivals"]) == (20, 120, 2)
    assert recording.pids == [me, child]
    (progress,) = recording.progress()
    assert (progress.core, progress.size_bytes, progress.lost_records) == (0, PAGE // 2, 7)
    assert progress.full and progress.stopped


def test_a_snapshot_is_never_full_and_says_that_it_has_overwritten_something(tmp_path: Path) -> None:
    class Overwritten(GivenRecords):
        def written(self, core: int) -> int:
            return PAGE

        def overwrites(self, core: int) -> bool:
            return True

        def kept(self, core: int) -> list[tuple[int, int]]:
            return [(1000, PAGE), (0, 10)]

        def packets(self, core: int) -> Iterator[bytes]:
            yield PSB[:1]
            yield PSB[1:] + b"\x19" + (1 << 50).to_bytes(7, "little")

    recording = PerfRecording(Overwritten([]), HalfNanosecondTicks(), [1 << 30], 1000, UNWATCHED)
    assert recording.finished()
    (stream,), (progress,) = recording.streams(), recording.progress()
    assert (stream.size_bytes, stream.overwritten, stream.full) == (PAGE - 990, True, False)
    assert stream.first_tsc == 1 << 50
    assert (progress.size_bytes, progress.full, progress.stopped) == (PAGE, False, False)
