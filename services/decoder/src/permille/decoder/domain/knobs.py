"""What to change so that a loss becomes smaller."""

from __future__ import annotations

MIB = 1 << 20
_MOST_MIB = 64 * 1024


def buffer_knob(buffer_bytes: int, recorded_bytes: int, lost_bytes: int) -> str:
    """A buffer budget that would have held everything: the present one in the ratio of what was to what was kept."""
    wanted = (
        buffer_bytes * (recorded_bytes + lost_bytes) / recorded_bytes if recorded_bytes else buffer_bytes + lost_bytes
    )
    mib = 1
    while mib * MIB < wanted and mib < _MOST_MIB:
        mib *= 2
    return f"permille trace --buffer {mib}MiB, or a shorter period: --for"


def decode_knob(reason: str) -> str:
    """For a stretch that could not be decoded."""
    known = {
        "nothing was mapped": "none of yours, as no program runs there: permille support-bundle, and report it",
        "missing": "record on a machine where the binary is readable, or upload it: permille upload-binary",
        "no-code": "record on a machine where the binary is readable, or upload it: permille upload-binary",
        "no file": "none: the code was gone before it could be copied",
        "synchronization": "permille trace with a smaller --psb-period",
        "overflow": "permille trace with fewer packets: --no-cyc",
    }
    lowered = reason.lower()
    return next((knob for word, knob in known.items() if word in lowered), "report it: permille support-bundle")
