"""Real processes that write code while they are recorded."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from permille.controller.domain import process_image, target_images
from permille.controller.domain.image_events import Forked, Mapped
from permille.controller.domain.mapping import Mapping
from permille.controller.domain.recording import ImageChange
from permille.controller.domain.target_images import TargetImages

# Writes each line of its input over its code, and tells where that is.
WRITER = """
import ctypes, mmap
code = mmap.mmap(
    -1, 8192, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
)
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
while True:
    line = bytes.fromhex(input())
    code[: len(line)] = line
    print(address, flush=True)
"""


class Writer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.address = self.write(b"")

    def write(self, code: bytes) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(code.hex() + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def writer() -> Iterator[Writer]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is read whenever there is a chance."""
    monkeypatch.setattr(target_images, "LOOK_S", 0.0)
    monkeypatch.setattr(target_images, "CODE_SHARE", float("inf"))


def recorded(pid: int) -> TargetImages:
    """What a process has mapped; the TSC counts how often it is asked for."""
    images = TargetImages([pid], itertools.count(1).__next__)
    images.look()
    return images


def codes(images: TargetImages, address: int) -> list[tuple[int, int, bytes]]:
    """What stood at an address: epoch, TSC and the first bytes."""
    (process,) = images.changes()

    def holds(change: ImageChange) -> bool:
        return change.event == "code" and change.address <= address < change.address + change.size_bytes

    return [
        (change.epoch, change.tsc, change.code[address - change.address :][:2])
        for change in filter(holds, process.changes)
    ]


def test_code_that_is_written_over_is_there_as_it_was_at_each_time() -> None:
    with writer() as process:
        images = recorded(process.pid)
        for code in (b"\x90\xc3", b"\xcc\xc3", b"\xf4\xc3"):
            process.write(code)
            images.keep_up(ended=False)
        process.write(b"\x0f\x0b")
        images.keep_up(ended=True)
    (note,) = images.notes()
    assert "wrote over 3 pages of code" in note
    found = codes(images, process.address)
    assert [(epoch, code) for epoch, _, code in found] == [
        (0, b"\x90\xc3"),
        (1, b"\xcc\xc3"),
        (2, b"\xf4\xc3"),
        (3, b"\x0f\x0b"),
    ]
    times = [tsc for _, tsc, _ in found]
    assert times[0] == 0 and times == sorted(set(times))


def test_what_a_process_wrote_is_there_though_it_has_ended() -> None:
    with writer() as process:
        images = recorded(process.pid)
        process.write(b"\x90\xc3")
        images.keep_up(ended=False)
        process.end()
        images.keep_up(ended=True)
    assert codes(images, process.address) == [(0, 0, b"\x90\xc3")] and not list(images.notes())


def test_memory_for_code_that_grows_or_is_protected_is_no_other_code() -> None:
    with writer() as process:
        images = recorded(process.pid)
        process.write(b"\x90\xc3")
        # The kernel tells of the part whose protection changed, and of all that there is now.
        for tsc, size in ((5, 4096), (6, 3 * 4096)):
            mapping = Mapping(process.address, process.address + size, 0, 0, "")
            images.tell([Mapped(tsc, process.pid, mapping)], tsc + 1)
        images.keep_up(ended=True)
    assert codes(images, process.address) == [(0, 0, b"\x90\xc3")]


def test_many_processes_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_images, "CODE_STEP_S", 1e-9)
    with writer() as one, writer() as other:
        images = TargetImages([one.pid, other.pid], itertools.count(1).__next__)
        images.look()
        for code in (b"\x90\xc3", b"\xcc\xc3"):
            for process in (one, other):
                process.write(code)
            images.keep_up(ended=False)
        images.keep_up(ended=True)
    first = {
        process.pid: next(change.code[:2] for change in process.changes if change.event == "code" and change.code)
        for process in images.changes()
    }
    assert sorted(first.values()) == [b"\x90\xc3", b"\xcc\xc3"]


def test_a_process_that_has_the_number_of_one_that_ended_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_images, "CODE_STEP_S", 1e-9)
    with writer() as one, writer() as other:
        images = TargetImages([one.pid, other.pid], itertools.count(1).__next__)
        images.look()
        images.keep_up(ended=False)
        images.tell([Forked(99, one.pid, one.pid, 1, 1)], 100)
        images.keep_up(ended=False)
        images.keep_up(ended=True)
    has_code = {process.pid: any(change.event == "code" for change in process.changes) for process in images.changes()}
    assert has_code == {one.pid: False, other.pid: True}


def test_of_more_code_than_is_read_of_a_process_the_first_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_image, "MOST_GENERATED_BYTES", 4096)
    with writer() as process:
        images = recorded(process.pid)
        process.write(b"\x90\xc3")
        images.keep_up(ended=True)
    (found,) = images.changes()
    assert [change.size_bytes for change in found.changes if change.event == "code"] == [4096]
