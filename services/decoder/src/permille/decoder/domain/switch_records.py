"""The switch records of a session: 24 bytes each, by time."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_RECORD = struct.Struct("<QIIII")
# The kernel's numbers of cores, processes and threads are signed and of 32 bits.
_END = 1 << 31
IN = 1


def records(switches: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """TSC, core, pid, tid, 1 in or 0 out, as `permille.ptcore` takes them.

    Without those that name what no system has, and without bytes behind the last whole record.
    """
    whole = len(switches) - len(switches) % _RECORD.size
    for tsc, core, pid, tid, operation in _RECORD.iter_unpack(memoryview(switches)[:whole]):
        if max(core, pid, tid) < _END:
            yield tsc, core, pid, tid, operation
