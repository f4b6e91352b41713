"""What lies in an AUX area that was mapped without write access: the kernel goes on at its beginning where it is full.

Such an area's `aux_head` is the place in it that is written next; it does not tell how often the end was passed
(arch/x86/events/intel/pt.c, `pt_update_head`).
"""

from __future__ import annotations

import mmap

# Intel SDM volume 3, "Packet Stream Boundary (PSB) Packet": no other packets look like it.
PSB = b"\x02\x82" * 8
# The header of a TSC packet, which has the low bits of the TSC, and so many of them.
_TSC, _TSC_BITS = 0x19, 56
_PIECE = 1 << 16


def wrapped(buffer: mmap.mmap, head: int) -> bool:
    """Whether its end was passed: the kernel gives it zeroed, and packets are no zeros for as long as a page."""
    return any(buffer[max(head % len(buffer), len(buffer) - mmap.PAGESIZE) :])


def newest(buffer: mmap.mmap, head: int) -> list[tuple[int, int]]:
    """The stretches (begin, end) that hold its packets, the older one first, from the first PSB on.

    What precedes that is a packet's end and packets that nobody understands alone. Without a PSB all are told.
    """
    size = len(buffer)
    head %= size
    if not wrapped(buffer, head):
        return [(0, head)]
    begin = head + _before_psb(buffer, head)
    return [(begin, size), (0, head)] if begin < size else [(begin - size, head)]


def begins_at(packets: bytes, earlier: int) -> int:
    """The TSC at their first PSB, where a TSC packet is next to it; else `earlier`, a moment before."""
    behind = packets[len(PSB) : len(PSB) + 1 + _TSC_BITS // 8]
    if not packets.startswith(PSB) or len(behind) <= _TSC_BITS // 8 or behind[0] != _TSC:
        return earlier
    return earlier + (int.from_bytes(behind[1:], "little") - earlier) % (1 << _TSC_BITS)


def _before_psb(buffer: mmap.mmap, head: int) -> int:
    """Bytes before the first PSB, in the order of writing; 0 without one.

    In copies: `mmap.find` of Python 3.11.2 reads behind the mapping.
    """
    passed, end_of_last = 0, b""
    for begin, end in ((head, len(buffer)), (0, head)):
        for at in range(begin, end, _PIECE):
            piece = end_of_last + buffer[at : min(at + _PIECE, end)]
            found = piece.find(PSB)
            if found >= 0:
                return passed + found
            end_of_last = piece[1 - len(PSB) :]
            passed += len(piece) - len(end_of_last)
    return 0
