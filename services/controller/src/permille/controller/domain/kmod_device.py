"""One open /dev/permille, which is one session: its calls, its mappings, and its refusals as errors."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from permille.controller.domain import kmod_layout as kmod
from permille.controller.domain import pt_model
from permille.controller.domain.kmod_layout import Refusal
from permille.controller.domain.node_use import cpu_list
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.mesh.errors import FailedPrecondition, Internal, NotFound, PermilleError, ResourceExhausted

BACKEND = "kmod"
CHUNK = 1 << 20
_U64 = struct.Struct("<Q")
_TAIL = kmod.Ring.tail.offset
_WHY_NOT = {
    errno.ENOENT: ("its kernel module is not loaded", "make kmod && sudo insmod kmod/permille.ko"),
    errno.ENXIO: ("its kernel module is being unloaded", "load it again, and try again"),
    errno.EACCES: (
        "its device belongs to root",
        "run the controller as root, or let it open /dev/permille",
    ),
    errno.EPERM: ("its kernel module wants CAP_PERFMON", "run the controller as root, or give it that capability"),
}


class KmodDevice:
    """Not to be shared among threads. Raises NotOnThisMachine when there is none of this version, or it is not ours."""

    def __init__(self, path: Path = Path(kmod.DEVICE), cpuinfo: Path = pt_model.CPUINFO) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENOENT and not pt_model.traces(cpuinfo):
                # The module would not load there.
                raise NotOnThisMachine(BACKEND, pt_model.NO_PT, "use hardware with Intel PT") from None
            why = _WHY_NOT.get(error.errno or 0, (f"{path} cannot be opened: {error.strerror}", "see `dmesg`"))
            raise NotOnThisMachine(BACKEND, *why) from None
        self._cores: list[kmod.CorePlan] = []
        self._traces: list[mmap.mmap] = []
        self._rings: list[mmap.mmap] = []

    def info(self) -> kmod.Info:
        info = kmod.Info()
        try:
            self._control(kmod.IOC_INFO, info)
        except OSError as error:
            raise NotOnThisMachine(BACKEND, f"its device does not answer: {error.strerror}", "see `dmesg`") from None
        if info.version != kmod.VERSION:
            raise NotOnThisMachine(
                BACKEND,
                f"its module speaks version {info.version} of the interface, this controller {kmod.VERSION}",
                "load the module of this release: make kmod && sudo insmod kmod/permille.ko",
            )
        return info

    def set_up(self, setup: kmod.Setup, cores: Sequence[kmod.CorePlan], pids: Sequence[int]) -> None:
        """Takes the cores and the memory, and maps it; from here on what the processes fork is followed.

        Raises what `refused` tells.
        """
        plans = (kmod.CorePlan * len(cores))(*cores)
        processes = (ctypes.c_uint32 * len(pids))(*pids)
        setup.version = kmod.VERSION
        setup.core_count, setup.cores = len(cores), ctypes.addressof(plans)
        setup.process_count, setup.processes = len(pids), ctypes.addressof(processes)
        try:
            self._control(kmod.IOC_SETUP, setup)
        except OSError as error:
            raise refused(setup.refusal, setup.refused_value, error) from None
        self._cores = list(plans)
        for index, core in enumerate(plans):
            # A processor with a single region gives less than it was asked for.
            core.buffer_bytes = self._core(index).buffer_bytes
            self._traces.append(self._map(core.buffer_bytes, mmap.PROT_READ, kmod.mmap_trace(index)))
            writable = mmap.PROT_READ | mmap.PROT_WRITE
            self._rings.append(self._map(kmod.ring_bytes(core.switch_records), writable, kmod.mmap_switches(index)))

    def add(self, pid: int) -> None:
        """The process is a target from now on; nothing changes if it was one. Raises what `refused` tells."""
        process = kmod.Process(version=kmod.VERSION, pid=pid)
        try:
            self._control(kmod.IOC_ADD_PROCESS, process)
        except OSError as error:
            raise refused(process.refusal, process.refused_value, error) from None

    def start(self) -> None:
        try:
            fcntl.ioctl(self._fd, kmod.IOC_START)
        except OSError as error:
            raise not_begun(error, [core.cpu for core in self._cores]) from None

    def stop(self) -> None:
        """Ends the session before its period is over; any number of times."""
        fcntl.ioctl(self._fd, kmod.IOC_STOP)

    def ended(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))

    def session(self) -> kmod.SessionStatus:
        status = kmod.SessionStatus()
        self._control(kmod.IOC_SESSION, status)
        return status

    def cores(self) -> list[kmod.CoreStatus]:
        """In the order of the plan."""
        return [self._core(index) for index in range(len(self._cores))]

    def buffer_bytes(self, index: int) -> int:
        return int(self._cores[index].buffer_bytes)

    def packets(self, index: int, size: int) -> Iterator[bytes]:
        """The first bytes of a core's buffer, in pieces."""
        trace = self._traces[index]
        for begin in range(0, size, CHUNK):
            yield trace[begin : min(begin + CHUNK, size)]

    def take_switches(self) -> bytes:
        """The records that are new since the last call, core by core."""
        return b"".join(map(take, self._rings))

    def close(self) -> None:
        """Ends the session and gives its memory back."""
        for mapping in (*self._traces, *self._rings):
            mapping.close()
        self._traces, self._rings = [], []
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _core(self, index: int) -> kmod.CoreStatus:
        status = kmod.CoreStatus(index=index)
        self._control(kmod.IOC_CORE, status)
        return status

    def _control(self, command: int, structure: ctypes.Structure) -> None:
        fcntl.ioctl(self._fd, command, structure, True)

    def _map(self, size: int, protection: int, offset: int) -> mmap.mmap:
        return mmap.mmap(self._fd, size, mmap.MAP_SHARED, protection, offset=offset)


def take(ring: mmap.mmap) -> bytes:
    """What the module has written to a ring since the last call; makes room for more."""
    head, tail = _U64.unpack_from(ring, 0)[0], _U64.unpack_from(ring, _TAIL)[0]
    if head == tail:
        return b""
    size = ctypes.sizeof(kmod.Switch)
    capacity = kmod.Ring.from_buffer_copy(ring).capacity
    begin, end = tail % capacity, head % capacity
    at = kmod.RING_RECORDS
    if begin < end:
        taken = ring[at + begin * size : at + end * size]
    else:
        taken = ring[at + begin * size : at + capacity * size] + ring[at : at + end * size]
    _U64.pack_into(ring, _TAIL, head)
    return taken


def not_begun(error: OSError, cores: Sequence[int], online: Path = cpu_list.ONLINE) -> PermilleError:
    """What it means that START failed: it has no refusal, only an error number, and each of these has one meaning."""
    if error.errno == errno.EBUSY:
        return refused(Refusal.SLEEPING, 0, error)
    if error.errno == errno.ENODEV:
        there = cpu_list.online(online)
        return refused(Refusal.CORE, next((core for core in cores if core not in there), cores[0]), error)
    return Internal(
        f"the kernel module does not start the session: {error.strerror}",
        reason="RECORDER_REFUSED",
        help="see `dmesg`, and `permille support-bundle`",
        metadata={"errno": str(error.errno)},
    )


def refused(refusal: int, value: int, error: OSError) -> PermilleError:
    """What the module's refusal of a session means, with the value and the way out."""
    told = {"refusal": str(refusal), "value": str(value)}
    if refusal == Refusal.PROCESS:
        return NotFound(
            f"process {value} has ended", reason="NO_SUCH_PROCESS", help="start it again", metadata={"pid": str(value)}
        )
    if refusal == Refusal.MEMORY:
        return ResourceExhausted(
            f"the kernel module has no room for {value} MiB of trace buffers",
            reason="TRACE_MEMORY_FULL",
            help="lower budget_bytes, wait for other sessions, or raise the limit:"
            " /sys/module/permille/parameters/memory_limit_mb",
            metadata=told,
            retry_after_s=1.0,
        )
    if refusal == Refusal.PERF and error.errno == errno.ENOENT:
        return NotOnThisMachine(
            BACKEND,
            "nothing tells whether perf records with intel_pt: the machine's first process sees no devices in /sys",
            "mount it where that process sees it: sudo nsenter -t 1 -m mount -t sysfs sysfs /sys",
        )
    if refusal in _NOT_HERE:
        because, way_out = _NOT_HERE[Refusal(refusal)]
        return NotOnThisMachine(BACKEND, because.format(value), way_out)
    if refusal in _NOT_NOW:
        because, way_out = _NOT_NOW[Refusal(refusal)]
        return FailedPrecondition(
            f"the kernel module refuses the session: {because.format(value)}",
            reason="RECORDER_REFUSED",
            help=way_out,
            metadata=told,
            retry_after_s=1.0,
        )
    name = Refusal(refusal).name if refusal in Refusal._value2member_map_ else str(refusal)
    return Internal(
        f"the kernel module refuses the session: {name}, value {value} ({error.strerror})",
        reason="RECORDER_REFUSED",
        help="is it the module of this release? see `dmesg`, and `permille support-bundle`",
        metadata=told,
    )


_NOT_HERE = {
    Refusal.VERSION: (
        "its module speaks version {} of the interface",
        "load the module of this release: make kmod && sudo insmod kmod/permille.ko",
    ),
    Refusal.FLAGS: (
        "its processor's trace unit does not offer all that was asked for (flags {:#x})",
        "trace with fewer packets: --no-cyc, --no-mtc",
    ),
    Refusal.FREQUENCY: (
        "its processor's trace unit does not offer the frequency {}",
        "choose another --psb-period or --mtc-freq",
    ),
    Refusal.NAMESPACE: (
        "the controller does not see the host's process ids",
        "run the controller in the host's pid namespace (hostPID: true)",
    ),
    Refusal.KVM: (
        "KVM has the trace unit of core {} for its guests",
        "end the virtual machines, or load kvm_intel with pt_mode=0",
    ),
}
_NOT_NOW = {
    Refusal.CORE: ("core {} is offline, or was since the plan was made", "try again: the plan is made anew"),
    Refusal.CORE_BUSY: ("another session records on core {}", "wait until that session ends, or stop it"),
    Refusal.PERF: ("perf records with intel_pt on core {}", "wait until perf ends, or end it"),
    Refusal.FOREIGN: ("somebody else's trace runs on core {}", "find who writes IA32_RTIT_CTL, and end it"),
    Refusal.ROOM: ("it has no room for process {} beside so many others", "record fewer processes"),
    Refusal.ENDED: ("it is over", "start another one"),
    Refusal.SLEEPING: ("the machine is about to sleep or to stop", "try again when it is awake"),
}
