"""What a ring of perf holds: records of variable size that wrap around its end, as the kernel documents it
(include/uapi/linux/perf_event.h, `struct perf_event_mmap_page` and `enum perf_event_type`)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

from permille.controller.domain.perf_layout import Page

_U64 = struct.Struct("<Q")
_HEADER = struct.Struct("<IHH")
_LOST = struct.Struct("<QQ")
NO_ROOM = "records of it found no room"
# What `sample_id_all` puts behind each record, for TID, TIME and CPU.
_SAMPLE_ID = struct.Struct("<IIQII")


class PerfRecord(NamedTuple):
    """One record: `body` without header and sample id; who was running, when in perf's ns, on which core."""

    kind: int
    misc: int
    body: bytes
    pid: int
    tid: int
    time: int
    cpu: int


def take(ring: mmap.mmap) -> bytes:
    """What the kernel has written since the last call; makes room for more."""
    head, tail = _U64.unpack_from(ring, Page.data_head.offset)[0], _U64.unpack_from(ring, Page.data_tail.offset)[0]
    (at,), (size,) = _U64.unpack_from(ring, Page.data_offset.offset), _U64.unpack_from(ring, Page.data_size.offset)
    begin, count = tail % size, head - tail
    first = min(count, size - begin)
    taken = ring[at + begin : at + begin + first] + ring[at : at + count - first]
    _U64.pack_into(ring, Page.data_tail.offset, head)
    return taken


def parse(data: bytes) -> Iterator[PerfRecord]:
    """The records of `take`, which are whole. Of events with TID, TIME, CPU and `sample_id_all`."""
    at = 0
    while at < len(data):
        kind, misc, size = _HEADER.unpack_from(data, at)
        end = at + size - _SAMPLE_ID.size
        pid, tid, time, cpu, _ = _SAMPLE_ID.unpack_from(data, end)
        yield PerfRecord(kind, misc, data[at + _HEADER.size : end], pid, tid, time, cpu)
        at += size


def lost(record: PerfRecord) -> int:
    """How many found no room, as a LOST record says."""
    return int(_LOST.unpack_from(record.body)[1])
