"""The interface of perf_event_open(2) as ctypes: what recording with intel_pt needs of linux/perf_event.h."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_uint16, c_uint32, c_uint64
from enum import IntEnum, IntFlag

SYS_PERF_EVENT_OPEN = 298
FLAG_FD_CLOEXEC = 1 << 3

TYPE_SOFTWARE = 1
COUNT_SW_DUMMY = 9

IOC_ENABLE = 0x2400
IOC_DISABLE = 0x2401
IOC_RESET = 0x2403
IOC_SET_OUTPUT = 0x2405

SAMPLE_TID, SAMPLE_TIME, SAMPLE_CPU = 1 << 1, 1 << 2, 1 << 7
CAP_USER_TIME_ZERO = 1 << 4


class AttrFlags(IntFlag):
    """The bits behind `read_format`."""

    DISABLED = 1 << 0
    INHERIT = 1 << 1
    EXCLUDE_KERNEL = 1 << 5
    EXCLUDE_HV = 1 << 6
    MMAP = 1 << 8
    COMM = 1 << 9
    TASK = 1 << 13
    SAMPLE_ID_ALL = 1 << 18
    MMAP2 = 1 << 23
    COMM_EXEC = 1 << 24
    CONTEXT_SWITCH = 1 << 26


class Attr(ctypes.Structure):
    """struct perf_event_attr, PERF_ATTR_SIZE_VER5"""

    _fields_ = (
        ("type", c_uint32),
        ("size", c_uint32),
        ("config", c_uint64),
        ("sample_period", c_uint64),
        ("sample_type", c_uint64),
        ("read_format", c_uint64),
        ("flags", c_uint64),
        ("wakeup_watermark", c_uint32),
        ("bp_type", c_uint32),
        ("config1", c_uint64),
        ("config2", c_uint64),
        ("branch_sample_type", c_uint64),
        ("sample_regs_user", c_uint64),
        ("sample_stack_user", c_uint32),
        ("clockid", c_int32),
        ("sample_regs_intr", c_uint64),
        ("aux_watermark", c_uint32),
        ("sample_max_stack", c_uint16),
        ("reserved", c_uint16),
    )


class Page(ctypes.Structure):
    """struct perf_event_mmap_page"""

    _fields_ = (
        ("version", c_uint32),
        ("compat_version", c_uint32),
        ("lock", c_uint32),
        ("index", c_uint32),
        ("offset", c_uint64),
        ("time_enabled", c_uint64),
        ("time_running", c_uint64),
        ("capabilities", c_uint64),
        ("pmc_width", c_uint16),
        ("time_shift", c_uint16),
        ("time_mult", c_uint32),
        ("time_offset", c_uint64),
        ("time_zero", c_uint64),
        ("padding", c_uint64 * 119),
        ("data_head", c_uint64),
        ("data_tail", c_uint64),
        ("data_offset", c_uint64),
        ("data_size", c_uint64),
        ("aux_head", c_uint64),
        ("aux_tail", c_uint64),
        ("aux_offset", c_uint64),
        ("aux_size", c_uint64),
    )


class Record(IntEnum):
    """Kinds of records that matter here."""

    LOST = 2
    COMM = 3
    EXIT = 4
    FORK = 7
    MMAP2 = 10
    AUX = 11
    SWITCH = 14


# Of a record's `misc`: of a SWITCH, and of a COMM.
SWITCH_OUT = COMM_EXEC = 1 << 13
AUX_TRUNCATED, AUX_PARTIAL = 1, 4
