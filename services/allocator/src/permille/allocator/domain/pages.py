"""Sizes of trace buffers are whole pages: a ToPA entry is a power of two of at least 4 KiB (Intel SDM volume 3)."""

from __future__ import annotations

PAGE = 4096
MIB = 1 << 20


def pages_up(size: int) -> int:
    return -(-size // PAGE) * PAGE


def pages_down(size: int) -> int:
    return size // PAGE * PAGE
