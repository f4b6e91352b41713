"""What is told of a stream whether it is a thread's own or part of a core's."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

from permille.ptcore import Column, Decoder, Image, PtConfig, decode_threads

CONFIG = PtConfig(6, 94, 3, 0, (0, 0), 0)
KERNEL = 0xFFFF_FFFF_8000_0000
NOP = b"\x90" * 16
# As the kernel finds it in front of where a sequence goes on (rseq(2)).
SIGNATURE = bytes.fromhex("53300553")


def psb_at(address: int) -> bytes:
    return bytes.fromhex("0282" * 8 + "9901") + to(0x1D, address) + bytes.fromhex("0223")


def to(opcode: int, address: int) -> bytes:
    return bytes([opcode | 0xC0]) + struct.pack("<Q", address)


def told_by_both(packets: bytes, image: Image) -> list[tuple[list[int], list[str]]]:
    """Flags of calls and reasons of losses: of a thread's own stream, and of a core's."""
    both = []
    for decode in (of_thread, of_core):
        flags: list[int] = []
        reasons: list[str] = []

        def take(calls: Any, _functions: Any, losses: Any, flags: Any = flags, reasons: Any = reasons) -> None:
            flags.extend(memoryview(calls["flags"]))
            reasons.extend(texts(*losses["reason"]))

        decode(packets, image, take)
        both.append((flags, reasons))
    return both


def of_thread(packets: bytes, image: Image, take: Any) -> None:
    Decoder(image, CONFIG).decode(packets, [(0, 0)], take)


def of_core(packets: bytes, image: Image, take: Any) -> None:
    cores = [(packets, 0, [(0, 7, 7, 0, 0, 0)], True)]
    decode_threads(cores, {7: image, 0xFFFF_FFFF: image}, CONFIG, {(0, 7, 7): take})


def texts(ends: Column, text: Column) -> list[str]:
    whole, places = bytes(memoryview(text)), list(memoryview(ends))
    return [whole[begin:end].decode() for begin, end in pairwise(places)]


def test_a_restarted_sequence_is_no_signal_handler() -> None:
    image = Image()
    image.code(0, 0x1000, NOP)
    image.code(0, 0x1FFC, SIGNATURE + NOP)
    interrupted = psb_at(0x1000) + to(0x1D, 0x1002) + b"\x01" + to(0x11, 0x2000) + to(0x1D, 0x2001) + b"\x01"
    of_thread, of_core = told_by_both(interrupted, image)
    assert of_thread == of_core
    assert of_thread[0] == [1, 6]


def test_code_of_the_kernel_that_is_not_known_is_told_with_what_is_known_of_the_place() -> None:
    image = Image()
    image.code(0, 0x1000, bytes.fromhex("900f05") + NOP)
    image.missing(0, KERNEL, 4096, "[net]", "vmlinux has no code there")
    of_thread, of_core = told_by_both(psb_at(0x1000) + to(0x0D, KERNEL) + to(0x0D, 0x1003), image)
    assert of_thread == of_core
    assert of_thread[1] == [f"no-kernel-code: nothing is known at {KERNEL:#x}: [net]: vmlinux has no code there"]
