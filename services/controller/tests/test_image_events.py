"""What the kernel tells of the code that processes have, and what is made of it."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain import image_watch, target_images
from permille.controller.domain import perf_layout as perf
from permille.controller.domain.image_events import Forked, ImageEvent, InOrder, Mapped, Named, image_event
from permille.controller.domain.image_watch import ImageWatch
from permille.controller.domain.kept_files import KeptFiles
from permille.controller.domain.mapping import Mapping, parse_maps
from permille.controller.domain.perf_clock import PerfClock
from permille.controller.domain.perf_events import IMAGE, SAMPLED, USER_CODE, open_event
from permille.controller.domain.perf_layout import Attr, Record
from permille.controller.domain.perf_records import PerfRecord
from permille.controller.domain.recording import ImageChange
from permille.controller.domain.target_images import MOST_CHANGES, TargetImages

# Numbers that no process has.
ME, CHILD, STRANGER = 1 << 30, (1 << 30) + 1, (1 << 30) + 2
FOR_EVER = 1 << 64


def record(kind: Record, body: bytes, misc: int = 0) -> PerfRecord:
    return PerfRecord(kind, misc, body, ME, ME, 50, 0)


def mmap2(begin: int, size: int, offset: int, inode: int, name: bytes) -> bytes:
    padded = name + bytes(8 - len(name) % 8)
    return struct.pack("<IIQQQIIQQII", ME, ME, begin, size, offset, 8, 1, inode, 0, 5, 2) + padded


@pytest.mark.parametrize(
    ("told", "mapping"),
    [
        (mmap2(0x1000, 0x2000, 0x400, 7, b"/lib/a b.so"), Mapping(0x1000, 0x3000, 0x400, 7, "/lib/a b.so")),
        (mmap2(0x1000, 0x2000, 0, 7, b"/lib/\xff (deleted)"), Mapping(0x1000, 0x3000, 0, 7, "/lib/\udcff (deleted)")),
        # Of anonymous memory the kernel tells its address as the place in a file.
        (mmap2(0x1000, 0x2000, 0x1000, 0, b"//anon"), Mapping(0x1000, 0x3000, 0, 0, "")),
        (mmap2(0x1000, 0x2000, 0, 0, b"[vdso]"), Mapping(0x1000, 0x3000, 0, 0, "[vdso]")),
        (mmap2(0x1000, 0x2000, 0, 7, b"//toolong"), Mapping(0x1000, 0x3000, 0, 7, "")),
    ],
)
def test_a_mapping_is_told_as_proc_shows_it(told: bytes, mapping: Mapping) -> None:
    assert image_event(record(Record.MMAP2, told), lambda ns: 2 * ns) == Mapped(100, ME, mapping)


def test_threads_processes_and_programs_are_told_apart() -> None:
    fork = struct.pack("<IIIIQ", CHILD, ME, CHILD, ME + 9, 0)
    assert image_event(record(Record.FORK, fork), int) == Forked(50, CHILD, CHILD, ME, ME + 9)
    named = struct.pack("<II8s", ME, ME + 1, b"worker")
    assert image_event(record(Record.COMM, named), int) == Named(50, ME, ME + 1, "worker", False)
    assert image_event(record(Record.COMM, named, perf.COMM_EXEC), int) == Named(50, ME, ME + 1, "worker", True)
    assert image_event(record(Record.LOST, struct.pack("<QQ", 1, 7)), int) is None


events = st.lists(st.builds(Named, st.integers(0, 40), st.just(ME), st.just(ME), st.just(""), st.just(False)))


@given(st.lists(events, max_size=4))
def test_what_cores_tell_comes_in_the_order_of_time_and_each_once(portions: list[list[ImageEvent]]) -> None:
    in_order, given_up = InOrder(), []
    for number, portion in enumerate(portions):
        # Whoever asks behind a time is told nothing any more of what was before the last one.
        later = [Named(event.tsc + 10 * number, ME, ME, "", False) for event in portion]
        given_up += in_order.until(10 * (number + 1), later)
    given_up += in_order.until(FOR_EVER, ())
    assert [event.tsc for event in given_up] == sorted(event.tsc for event in given_up)
    assert len(given_up) == sum(map(len, portions))


def at(changes: list[ImageChange], address: int, tsc: int) -> tuple[str, int]:
    """What the archive has at an address at a time, file and offset: of the epochs that hold by then the last one."""
    epoch = max((change.epoch for change in changes if change.tsc and change.tsc <= tsc), default=0)
    there = [change for change in changes if change.epoch <= epoch]
    covering = [change for change in there if change.address <= address < change.address + change.size_bytes]
    return (covering[-1].path, covering[-1].offset + address - covering[-1].address) if covering else ("", 0)


PIDS = (ME, CHILD, STRANGER)
what_happens = st.one_of(
    st.tuples(
        st.just("map"), st.sampled_from(PIDS), st.integers(0, 5), st.integers(1, 3), st.sampled_from(["/a", "/b"])
    ),
    st.tuples(st.just("fork"), st.sampled_from(PIDS), st.sampled_from(PIDS)),
    st.tuples(st.just("begin"), st.sampled_from(PIDS)),
)


@given(st.lists(what_happens, max_size=30), st.integers(1, 40))
def test_at_each_time_a_process_has_what_it_had(happened: list[tuple[object, ...]], portion: int) -> None:
    images = TargetImages([ME], lambda: 0)
    had: dict[int, dict[int, tuple[str, int]]] = {ME: {}}
    strangers: set[int] = set()
    told: list[ImageEvent] = []
    states: list[tuple[int, dict[int, dict[int, tuple[str, int]]]]] = []
    for number, what in enumerate(happened):
        tsc = 10 * number + 10
        match what:
            case ("map", int(pid), int(page), int(pages), str(name)):
                told.append(Mapped(tsc, pid, Mapping(page << 12, page + pages << 12, 0, 1 + (name == "/b"), name)))
                if pid in had and pid not in strangers:
                    had[pid].update({page + one: (name, one << 12) for one in range(pages)})
            case ("fork", int(pid), int(parent)):
                told.append(Forked(tsc, pid, pid, parent, parent))
                if parent in had and parent not in strangers and pid != parent:
                    had[pid] = dict(had[parent])
                    strangers.discard(pid)
                elif parent not in had or parent in strangers:
                    strangers.update({pid} & had.keys())
            case ("begin", int(pid)):
                told.append(Named(tsc, pid, pid, "x", True))
                if pid in had and pid not in strangers:
                    had[pid] = {}
        states.append((tsc, {pid: dict(pages) for pid, pages in had.items()}))
    for begin in range(0, len(told), portion):
        images.tell(told[begin : begin + portion], 10 * (begin + portion))
    images.keep_up(ended=True)
    changes = {one.pid: list(one.changes) for one in images.changes()}
    assert set(changes) == set(had)
    for tsc, processes in states:
        for process, there in processes.items():
            # Where nothing is any more nothing runs.
            assert {page: at(changes[process], page << 12, tsc) for page in there} == there


def test_a_child_that_is_gone_has_the_names_and_the_root_of_its_parent() -> None:
    images = TargetImages([ME], lambda: 0)
    images.tell([Named(1, ME, ME, "server", False), Forked(2, CHILD, CHILD, ME, ME)], FOR_EVER)
    images.tell([Forked(3, ME, ME + 9, ME, ME), Named(4, CHILD, CHILD, "worker", True)], FOR_EVER)
    assert images.thread_names == {(ME, ME): "server", (ME, ME + 9): "server", (CHILD, CHILD): "worker"}
    assert {process.pid: process.roots for process in images.changes()} == {ME: [ME], CHILD: [CHILD, ME]}
    assert images.pids == [ME, CHILD]


def test_a_process_that_has_the_number_of_one_that_ended_is_another_ones() -> None:
    images = TargetImages([ME], lambda: 0)
    code = [Mapping(n << 12, (n + 1) << 12, 0, 1, f"/{n}") for n in range(4)]
    told: list[ImageEvent] = [
        # Of its own birth it may be told when it is known already.
        Forked(0, ME, ME, STRANGER, STRANGER),
        Mapped(1, ME, code[0]),
        Forked(2, CHILD, CHILD, ME, ME),
        Mapped(3, CHILD, code[1]),
        Forked(4, CHILD, CHILD, STRANGER, STRANGER),
        Mapped(5, CHILD, code[2]),
        Named(6, CHILD, CHILD, "another", True),
        Forked(7, CHILD + 2, CHILD + 2, CHILD, CHILD),
    ]
    images.tell(told, FOR_EVER)
    assert {one.pid: [change.path for change in one.changes] for one in images.changes()} == {
        ME: ["/0"],
        CHILD: ["/0", "/1"],
    }
    assert (CHILD, CHILD) not in images.thread_names
    # And once more one of the target's.
    images.tell([Forked(8, CHILD, CHILD, ME, ME), Mapped(9, CHILD, code[3])], FOR_EVER)
    (_, child) = images.changes()
    assert [change.path for change in child.changes] == ["/0", "/1", "/3", "/0"]


def test_the_threads_of_another_process_with_that_number_are_not_named() -> None:
    images = TargetImages([ME], lambda: 0)
    own = os.getpid()
    images.tell([Forked(1, own, own, ME, ME), Forked(2, own, own, STRANGER, STRANGER)], FOR_EVER)
    images.keep_up(ended=False)
    assert (own, own) not in images.thread_names


def test_a_removed_file_that_finds_no_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_images, "KeptFiles", partial(KeptFiles, 0))
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    images = TargetImages([os.getpid()], lambda: 0)
    with program.open("rb") as opened:
        code = mmap.PROT_READ | mmap.PROT_EXEC
        with mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=code):
            program.unlink()
            images.keep_up(ended=True)
    (note,) = images.notes()
    assert note.startswith(f"{program}: of files that were removed")


def test_a_program_that_maps_without_end_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_images, "MOST_CHANGES", 3)
    images = TargetImages([ME], lambda: 0)
    assert MOST_CHANGES > 3 and not list(images.notes())
    images.tell((Mapped(n, ME, Mapping(0, 1, 0, n, "/a")) for n in range(1, 9)), FOR_EVER)
    (process,) = images.changes()
    assert len(list(process.changes)) == 3
    (note,) = images.notes()
    assert "up to its change 3" in note


class Nanoseconds(PerfClock):
    """perf's own."""

    def __init__(self) -> None: ...
    def tsc(self, ns: int) -> int:
        return ns

    def close(self) -> None: ...


@pytest.fixture
def watch() -> Iterator[ImageWatch]:
    attr = Attr(type=perf.TYPE_SOFTWARE, config=perf.COUNT_SW_DUMMY, sample_type=SAMPLED, flags=IMAGE | USER_CODE)
    try:
        os.close(open_event(attr, -1, min(os.sched_getaffinity(0))))
    except OSError as error:
        pytest.skip(f"events of cores are not allowed here: {error.strerror}")
    watch = ImageWatch(sorted(os.sched_getaffinity(0)), Nanoseconds)
    assert not watch.missed
    yield watch
    watch.close()


MAPS_AND_FORKS = """if True:
    import mmap, os, random, sys
    file = open(sys.argv[1], "rb")
    code, chance = mmap.PROT_READ | mmap.PROT_EXEC, random.Random(3)
    print(flush=True)
    input()
    for _ in range(200):
        at = mmap.PAGESIZE * chance.randrange(4)
        one = mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_PRIVATE, code, offset=at)
        other = mmap.mmap(-1, mmap.PAGESIZE * 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, code | mmap.PROT_WRITE)
        if chance.random() < 0.5:
            one.close()
        if chance.random() < 0.7:
            other.close()
    for _ in range(3):
        if not os.fork():
            os.execl("/bin/true", "true")
        os.wait()
    os.execl(sys.executable, "again", "-c", "print(flush=True); input()")
"""


def test_what_is_told_of_a_program_is_what_proc_shows_of_it(watch: ImageWatch, tmp_path: Path) -> None:
    library = tmp_path / "code.so"
    library.write_bytes(bytes(5 << 12))
    command = [sys.executable, "-c", MAPS_AND_FORKS, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdin is not None and target.stdout is not None
        # It waits for its input.
        target.stdout.readline()
        images = TargetImages([target.pid], lambda: 0)
        images.look()
        list(watch.take())
        target.stdin.write(b"\n")
        target.stdin.flush()
        target.stdout.readline()
        images.tell(watch.take(), FOR_EVER)
        shown = set(parse_maps(Path(f"/proc/{target.pid}/maps").read_text()))
        changes = {process.pid: list(process.changes) for process in images.changes()}
        target.communicate(b"\n")
    own = changes.pop(target.pid)
    assert shown and not watch.missed
    for mapping in shown - {one for one in shown if one.in_memory_only}:
        assert at(own, mapping.begin, FOR_EVER) == (mapping.path, mapping.offset)
    assert {change.path for change in own} >= {str(library), str(Path(sys.executable).resolve())}
    # Nobody had the time to look at them.
    assert len(changes) == 3
    for of_child in changes.values():
        assert str(Path("/bin/true").resolve()) in {change.path for change in of_child}
    assert images.thread_names[target.pid, target.pid].startswith("python")


def test_records_that_find_no_room_are_told_of(watch: ImageWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    watch.close()
    monkeypatch.setattr(image_watch, "RING_BYTES", 1 << 12)
    small = ImageWatch(sorted(os.sched_getaffinity(0)), Nanoseconds)
    for _ in range(60):
        subprocess.run(["/bin/true"], check=True)
    deadline = time.monotonic() + 60
    while not small.missed and time.monotonic() < deadline:
        subprocess.run(["/bin/true"], check=True)
        list(small.take())
    small.close()
    images = TargetImages([ME], lambda: 0)
    images.missed(small.missed)
    (note,) = images.notes()
    assert "not told by the kernel (records of it found no room)" in note


def test_where_perf_may_not_be_used_what_is_mapped_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(image_watch, "open_event", refused)
    watch = ImageWatch([0], Nanoseconds)
    assert "does not let this user (Permission denied" in watch.missed
    assert not list(watch.take())
    watch.close()
