"""The interface of /dev/permille as ctypes: kmod/include/uapi/permille.h, which says what each field means."""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64
from enum import IntEnum, IntFlag

VERSION = 2
DEVICE = "/dev/permille"

MIN_PERIOD_NS, MAX_PERIOD_NS = 100_000, 60_000_000_000
MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 4096, 128 << 20
MIN_RECORDS, MAX_RECORDS = 64, 1 << 22
MAX_PROCESSES = 64
RING_RECORDS = 4096


class Flags(IntFlag):
    """What a processor offers and a session asks for."""

    TSC = 1 << 0
    MTC = 1 << 1
    CYC = 1 << 2
    NO_RET_COMPRESSION = 1 << 3
    CR3_FILTER = 1 << 4
    KERNEL = 1 << 5
    FOLLOW_FORK = 1 << 6
    WRITE_COMBINING = 1 << 7


class Unit(IntEnum):
    """What the module drives."""

    MSR = 1
    MODEL = 2
    EMULATED = 3


class Refusal(IntEnum):
    """Why SETUP or ADD_PROCESS said no."""

    NOT = 0
    VERSION = 1
    FLAGS = 2
    RESERVED = 3
    PERIOD = 4
    FREQUENCY = 5
    CORE_COUNT = 6
    CORE = 7
    BUFFER = 8
    RECORDS = 9
    CORE_BUSY = 10
    PERF = 11
    FOREIGN = 12
    KVM = 13
    PROCESS_COUNT = 14
    PROCESS = 15
    NAMESPACE = 16
    MEMORY = 17
    SLEEPING = 18
    ROOM = 19
    ENDED = 20


class State(IntEnum):
    """How far a session is."""

    NEW = 0
    READY = 1
    ACTIVE = 2
    ENDED = 3


class End(IntEnum):
    """Why a core's part is over."""

    NOT = 0
    PERIOD = 1
    STOPPED = 2
    OFFLINE = 3
    SLEEP = 4
    FAULT = 5


class Info(ctypes.Structure):
    """struct permille_info"""

    _fields_ = (
        ("version", c_uint32),
        ("backend", c_uint32),
        ("features", c_uint32),
        ("psb_freqs", c_uint32),
        ("mtc_freqs", c_uint32),
        ("cyc_thresholds", c_uint32),
        ("regions", c_uint32),
        ("per_switch", c_uint32),
        ("memory_limit_bytes", c_uint64),
        ("memory_used_bytes", c_uint64),
        ("sessions", c_uint32),
        ("reserved", c_uint32),
    )


class CorePlan(ctypes.Structure):
    """struct permille_core_plan"""

    _fields_ = (("cpu", c_uint32), ("switch_records", c_uint32), ("buffer_bytes", c_uint64))


class Setup(ctypes.Structure):
    """struct permille_setup"""

    _fields_ = (
        ("version", c_uint32),
        ("flags", c_uint32),
        ("period_ns", c_uint64),
        ("psb_freq", c_uint32),
        ("mtc_freq", c_uint32),
        ("cyc_threshold", c_uint32),
        ("core_count", c_uint32),
        ("process_count", c_uint32),
        ("reserved", c_uint32),
        ("cores", c_uint64),
        ("processes", c_uint64),
        ("refusal", c_uint32),
        ("refused_value", c_uint32),
    )


class Process(ctypes.Structure):
    """struct permille_process"""

    _fields_ = (
        ("version", c_uint32),
        ("pid", c_uint32),
        ("reserved", c_uint32),
        ("refusal", c_uint32),
        ("refused_value", c_uint32),
    )


class SessionStatus(ctypes.Structure):
    """struct permille_session_status"""

    _fields_ = (
        ("state", c_uint32),
        ("core_count", c_uint32),
        ("processes", c_uint32),
        ("processes_missed", c_uint32),
        ("start_tsc", c_uint64),
        ("start_ns", c_uint64),
        ("now_tsc", c_uint64),
        ("now_ns", c_uint64),
        ("end_ns", c_uint64),
    )


class CoreStatus(ctypes.Structure):
    """struct permille_core_status"""

    _fields_ = (
        ("index", c_uint32),
        ("cpu", c_uint32),
        ("tracing", c_uint32),
        ("end", c_uint32),
        ("full", c_uint32),
        ("faults", c_uint32),
        ("trace_bytes", c_uint64),
        ("operations_on", c_uint64),
        ("operations_off", c_uint64),
        ("retargets", c_uint64),
        ("arrivals", c_uint64),
        ("records", c_uint64),
        ("records_dropped", c_uint64),
        ("hook_calls", c_uint64),
        ("hook_ticks", c_uint64),
        ("hook_ticks_max", c_uint64),
        ("first_tsc", c_uint64),
        ("last_tsc", c_uint64),
        ("buffer_bytes", c_uint64),
        ("regions", c_uint32),
        ("error", c_uint32),
    )


class Switch(ctypes.Structure):
    """struct permille_switch"""

    _fields_ = (
        ("tsc", c_uint64),
        ("cpu", c_uint32),
        ("pid", c_uint32),
        ("tid", c_uint32),
        ("operation", c_uint32),
    )


class Ring(ctypes.Structure):
    """struct permille_ring"""

    _fields_ = (
        ("head", c_uint64),
        ("dropped", c_uint64),
        ("capacity", c_uint32),
        ("reserved", c_uint32),
        ("padding", c_uint64 * 5),
        ("tail", c_uint64),
    )


# _IOC of asm-generic/ioctl.h: direction, size, 'p', number.
_READ, _WRITE = 2 << 30, 1 << 30


def _command(direction: int, number: int, size: int = 0) -> int:
    return direction | size << 16 | ord("p") << 8 | number


IOC_INFO = _command(_READ, 0xA0, ctypes.sizeof(Info))
IOC_SETUP = _command(_READ | _WRITE, 0xA1, ctypes.sizeof(Setup))
IOC_START = _command(0, 0xA2)
IOC_STOP = _command(0, 0xA3)
IOC_SESSION = _command(_READ, 0xA4, ctypes.sizeof(SessionStatus))
IOC_CORE = _command(_READ | _WRITE, 0xA5, ctypes.sizeof(CoreStatus))
IOC_ADD_PROCESS = _command(_READ | _WRITE, 0xA6, ctypes.sizeof(Process))


def mmap_trace(index: int) -> int:
    """The offset of a core's packets, by its place in the plan."""
    return index << 32


def mmap_switches(index: int) -> int:
    """The offset of a core's switch records."""
    return index << 32 | 1 << 31


def ring_bytes(capacity: int) -> int:
    """Of the mapping of a ring: a page, and its records in whole pages."""
    return RING_RECORDS + -(-capacity * ctypes.sizeof(Switch) // 4096) * 4096
