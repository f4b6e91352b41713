"""The memory that a recordable process shares with the controller: services/controller/vpt/include/permille/vpt.h."""

from __future__ import annotations

from ctypes import LittleEndianStructure, c_char, c_uint8, c_uint32, c_uint64
from enum import IntEnum, IntFlag

MAGIC = 0x7470766C6D726570
VERSION = 2
PAGE = 4096
MAX_STREAMS = 1024


class State(IntEnum):
    """What the process is doing."""

    IDLE = 0
    CLAIMED = 1
    ARMED = 2
    ACTIVE = 3
    FINISHED = 4
    REFUSED = 5


class Stop(IntEnum):
    """Why a recording ended."""

    NONE = 0
    PERIOD = 1
    REQUEST = 2


class Flags(IntFlag):
    """What to record."""

    TSC = 1 << 0
    MTC = 1 << 1
    CYC = 1 << 2
    DISRETC = 1 << 3
    LONG_TNT = 1 << 4
    TRUTH = 1 << 5
    FOLLOW = 1 << 6
    BRANCH = 1 << 7


class RecordKind(IntEnum):
    """What a record of the sideband is about."""

    MAP = 1
    UNMAP = 2
    CODE = 3
    MARK = 4


class Anchor(LittleEndianStructure):
    """struct vpt_anchor"""

    _fields_ = (("tsc", c_uint64), ("realtime_ns", c_uint64), ("monotonic_ns", c_uint64))


class Planned(LittleEndianStructure):
    """struct vpt_planned"""

    _fields_ = (("tid", c_uint32), ("reserved", c_uint32), ("size_bytes", c_uint64))


class Control(LittleEndianStructure):
    """struct vpt_control"""

    _fields_ = (
        ("magic", c_uint64),
        ("version", c_uint32),
        ("pid", c_uint32),
        ("process_start", c_uint64),
        ("state", c_uint32),
        ("stop_request", c_uint32),
        ("stop_reason", c_uint32),
        ("parent_pid", c_uint32),
        ("family", c_uint32),
        ("model", c_uint32),
        ("stepping", c_uint32),
        ("tsc_ctc_num", c_uint32),
        ("tsc_ctc_den", c_uint32),
        ("nominal_ratio", c_uint32),
        ("session", c_char * 64),
        ("period_ns", c_uint64),
        ("flags", c_uint32),
        ("psb_freq", c_uint32),
        ("mtc_freq", c_uint32),
        ("planned_count", c_uint32),
        ("bandwidth_bytes_per_ms", c_uint64),
        ("begin", Anchor),
        ("end", Anchor),
        ("streams", c_uint32),
        ("epoch", c_uint32),
        ("sideband_bytes", c_uint64),
        ("unbuffered_blocks", c_uint64),
        ("unbuffered_threads", c_uint32),
        ("unexplained", c_uint32),
        ("revoked_threads", c_uint32),
        ("reserved", c_uint32),
        ("error", c_char * 256),
        ("planned", Planned * MAX_STREAMS),
    )


class StreamHeader(LittleEndianStructure):
    """struct vpt_stream"""

    _fields_ = (
        ("magic", c_uint64),
        ("version", c_uint32),
        ("index", c_uint32),
        ("tid", c_uint32),
        ("full", c_uint32),
        ("size_bytes", c_uint64),
        ("written_bytes", c_uint64),
        ("blocks", c_uint64),
        ("lost_blocks", c_uint64),
        ("first_tsc", c_uint64),
        ("last_tsc", c_uint64),
        ("overflows", c_uint32),
        ("in_user", c_uint32),
        ("name", c_char * 16),
    )


class Record(LittleEndianStructure):
    """struct vpt_record"""

    _fields_ = (("kind", c_uint32), ("size", c_uint32), ("tsc", c_uint64))


class Map(LittleEndianStructure):
    """struct vpt_map"""

    _fields_ = (
        ("epoch", c_uint32),
        ("build_id_size", c_uint32),
        ("address", c_uint64),
        ("size_bytes", c_uint64),
        ("offset", c_uint64),
        ("build_id", c_uint8 * 32),
    )


class Mark(LittleEndianStructure):
    """struct vpt_mark"""

    _fields_ = (("stream", c_uint32), ("epoch", c_uint32), ("offset", c_uint64))
