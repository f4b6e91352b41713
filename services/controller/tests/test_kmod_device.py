"""Refusals of the kernel module as errors, and rings as they are read."""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from permille.controller.domain import kmod_layout as kmod
from permille.controller.domain.image_watch import ImageWatch
from permille.controller.domain.kmod_backend import (
    SWITCH_RECORDS,
    KmodBackend,
    KmodRecording,
    ends_told,
    left_for_buffers,
    offered,
)
from permille.controller.domain.kmod_device import KmodDevice, not_begun, refused, take
from permille.controller.domain.kmod_layout import End, Refusal, Unit
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.pt_model import EMULATED
from permille.controller.domain.recording import CoreBuffers, counters_of
from permille.controller.domain.targets.group_members import GroupMembers
from permille.controller.domain.targets.resolution import NO_GROUP, Group, Roots
from permille.controller.service.core_planner import equal_split
from permille.mesh.errors import FailedPrecondition, Internal, NotFound, ResourceExhausted


def test_a_machine_without_the_module_is_told_so_and_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu intel_pt sse\n")
    with pytest.raises(NotOnThisMachine) as raised:
        KmodDevice(tmp_path / "permille", tmp_path / "cpuinfo")
    error = raised.value
    assert error.message == "kmod: not on this machine, because its kernel module is not loaded"
    assert error.reason == "BACKEND_UNAVAILABLE" and "insmod" in error.help


def test_a_processor_on_which_the_module_cannot_load_is_the_reason_and_no_module_is_offered(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu sse\n")
    with pytest.raises(NotOnThisMachine) as raised:
        KmodDevice(tmp_path / "permille", tmp_path / "cpuinfo")
    assert raised.value.because == "this processor (or virtual machine) has no Intel PT"
    assert raised.value.help == "use hardware with Intel PT"


def test_a_device_that_is_another_one_is_told_from_the_module(tmp_path: Path) -> None:
    other = tmp_path / "permille"
    other.write_bytes(b"")
    with pytest.raises(NotOnThisMachine, match="does not answer"):
        KmodDevice(other).info()


def test_the_error_comes_whole_out_of_another_process() -> None:
    error = NotOnThisMachine("kmod", "it is so", "change it")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, NotOnThisMachine)
    assert (again.message, again.help, again.because) == (error.message, "change it", "it is so")


@pytest.mark.parametrize("refusal", Refusal)
def test_every_refusal_names_its_value_and_a_way_out(refusal: Refusal) -> None:
    error = refused(refusal, 4711, OSError(errno.EINVAL, "Invalid argument"))
    assert error.help
    assert any(value in error.message for value in ("4711", hex(4711))) or refusal in (
        Refusal.SLEEPING,
        Refusal.NAMESPACE,
        Refusal.ENDED,
    )


def test_what_a_machine_lacks_is_told_from_what_is_busy_now() -> None:
    failed = OSError(errno.EBUSY, "Device or resource busy")
    assert isinstance(refused(Refusal.KVM, 1, failed), NotOnThisMachine)
    assert isinstance(refused(Refusal.FLAGS, 4, failed), NotOnThisMachine)
    for refusal in (Refusal.CORE_BUSY, Refusal.PERF, Refusal.FOREIGN, Refusal.CORE):
        error = refused(refusal, 1, failed)
        assert isinstance(error, FailedPrecondition) and not isinstance(error, NotOnThisMachine)
        assert error.retry_after_s
    unseen = refused(Refusal.PERF, 1, OSError(errno.ENOENT, "No such file or directory"))
    assert isinstance(unseen, NotOnThisMachine) and "sees no devices in /sys" in unseen.message
    assert isinstance(refused(Refusal.MEMORY, 64, failed), ResourceExhausted)
    assert isinstance(refused(Refusal.PROCESS, 12, failed), NotFound)
    # A number that only a newer module knows.
    assert "99" in refused(99, 0, failed).message


def test_a_start_that_fails_is_told_by_its_number(tmp_path: Path) -> None:
    online = tmp_path / "online"
    online.write_text("0-2,5\n")
    sleeping, offline, other = (
        not_begun(OSError(number, "no"), [1, 3, 5], online) for number in (errno.EBUSY, errno.ENODEV, errno.EIO)
    )
    assert isinstance(sleeping, FailedPrecondition) and "about to sleep" in sleeping.message
    assert isinstance(offline, FailedPrecondition) and "core 3 is offline, or was" in offline.message
    assert sleeping.retry_after_s and offline.retry_after_s
    # What is neither is not guessed.
    assert isinstance(other, Internal) and other.metadata == {"errno": str(errno.EIO)}


def test_a_module_that_was_loaded_for_tests_or_comparison_is_not_for_recording() -> None:
    offered(kmod.Info(backend=Unit.MSR))
    with pytest.raises(NotOnThisMachine, match="model=1"):
        offered(kmod.Info(backend=Unit.MODEL))
    with pytest.raises(NotOnThisMachine, match="per_switch=1, which is for comparison only") as refused_one:
        offered(kmod.Info(backend=Unit.MSR, per_switch=1))
    assert "without per_switch" in refused_one.value.help


class Limited(KmodDevice):
    """A module that has given away some of what it may have."""

    given = kmod.Info(memory_limit_bytes=64 << 20, memory_used_bytes=5 << 20)

    def __init__(self) -> None: ...
    def close(self) -> None: ...
    def info(self) -> kmod.Info:
        return self.given


def test_a_plan_of_all_that_is_free_fits_beside_the_rings_of_its_cores() -> None:
    cores = range(os.cpu_count() or 1)
    plan = equal_split(cores, KmodBackend(Limited).free_bytes()).buffers
    assert isinstance(plan, CoreBuffers)
    # As the module counts at SETUP.
    taken = sum(size + kmod.ring_bytes(SWITCH_RECORDS) for size in plan.sizes.values())
    left = Limited.given.memory_limit_bytes - Limited.given.memory_used_bytes - taken
    assert 0 <= left < mmap.PAGESIZE * len(cores)


def test_where_rings_alone_would_take_it_all_nothing_is_free() -> None:
    assert left_for_buffers(kmod.Info(memory_limit_bytes=1 << 20), 4) == 0


class GivenCores(KmodDevice):
    """A session of two cores that has ended: the first is full, the second went offline."""

    def __init__(self) -> None: ...
    def start(self) -> None: ...
    def ended(self) -> bool:
        return True

    def session(self) -> kmod.SessionStatus:
        return kmod.SessionStatus(processes=1)

    def buffer_bytes(self, index: int) -> int:
        return 4096 * (index + 1)

    def cores(self) -> list[kmod.CoreStatus]:
        return [
            kmod.CoreStatus(index=0, cpu=2, full=1, end=End.PERIOD, trace_bytes=4096, operations_on=1, hook_calls=9),
            kmod.CoreStatus(
                index=1, cpu=5, end=End.OFFLINE, trace_bytes=100, records_dropped=3, operations_on=1, hook_ticks_max=70
            ),
        ]


def test_cores_tell_how_far_they_are_what_they_lost_and_what_the_module_did() -> None:
    own = [os.getpid()]
    recording = KmodRecording(GivenCores(), own, EMULATED, GroupMembers(NO_GROUP, own), ImageWatch([]))
    full, offline = recording.progress()
    assert (full.core, full.size_bytes, full.buffer_bytes, full.full, full.stopped) == (2, 4096, 4096, True, True)
    # Each core has a buffer of its own size.
    assert (offline.core, offline.size_bytes, offline.buffer_bytes) == (5, 100, 8192)
    assert (offline.full, offline.stopped) == (False, True)
    assert (full.lost_records, offline.lost_records) == (0, 3)
    assert recording.finished()
    assert [(one.core, one.size_bytes) for one in recording.progress()] == [(2, 4096), (5, 100)]
    counters = counters_of(recording.streams())
    assert (counters["operations_on"], counters["hook_calls"], counters["records_dropped"]) == (2, 9, 3)
    assert counters["hook_ticks_max"] == 70


def test_an_error_of_the_trace_unit_is_told_from_a_refused_access() -> None:
    error = kmod.CoreStatus(cpu=3, end=End.FAULT, error=1)
    fault = kmod.CoreStatus(cpu=4, end=End.FAULT, faults=1)
    told = ends_told([error, kmod.CoreStatus(cpu=5, end=End.PERIOD), fault])
    assert told == (
        "core 3 met an error of its trace unit and recorded nothing more (IA32_RTIT_STATUS.Error);"
        " core 4 refused an access to its trace unit"
    )


class Adding(GivenCores):
    """Tells whom it was asked to add."""

    def __init__(self) -> None:
        self.added: list[int] = []

    def add(self, pid: int) -> None:
        self.added.append(pid)


def test_who_is_in_the_group_beyond_those_that_setup_takes_is_added_as_soon_as_it_records(tmp_path: Path) -> None:
    # Of numbers that no process of this machine has.
    pids = [(1 << 22) + number for number in range(100)]
    for pid in pids:
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text("0::/web\n")
    (tmp_path / "cgroups" / "web").mkdir(parents=True)
    roots = Roots(proc=tmp_path / "proc", cgroups=tmp_path / "cgroups")
    device, first = Adding(), pids[: kmod.MAX_PROCESSES]
    KmodRecording(device, first, EMULATED, GroupMembers(Group(cgroup="/web"), first, roots), ImageWatch([]))
    assert device.added == pids[kmod.MAX_PROCESSES :]


@given(st.lists(st.integers(0, 8), max_size=20), st.integers(0, 1 << 40))
def test_a_ring_gives_every_record_once_wherever_it_wraps(portions: list[int], begin: int) -> None:
    capacity, size = 8, 24
    ring = mmap.mmap(-1, kmod.ring_bytes(capacity))
    struct.pack_into("<I", ring, kmod.Ring.capacity.offset, capacity)
    written = begin
    struct.pack_into("<Q", ring, 0, begin)
    struct.pack_into("<Q", ring, kmod.Ring.tail.offset, begin)
    for portion in portions:
        expected = []
        for _ in range(portion):
            record = struct.pack("<QIIII", written, 1, 2, 3, written & 1)
            at = kmod.RING_RECORDS + written % capacity * size
            ring[at : at + size] = record
            expected.append(record)
            written += 1
        struct.pack_into("<Q", ring, 0, written)
        assert take(ring) == b"".join(expected)
        assert take(ring) == b""
        assert struct.unpack_from("<Q", ring, kmod.Ring.tail.offset) == (written,)
