"""What to change so that a loss becomes smaller."""

from __future__ import annotations

MIB = 1 << 20
_MOST_MIB = 64 * 1024
# For the tool that recorded what was imported.
_RECORDER = "record again with larger buffers (perf record -m ,64M), or for less time"
_BINARY = (
    "record on a machine where the binary is readable, or upload it: permille upload-binary FILE,"
    " then permille report SESSION --again"
)
_KERNEL = "import again with --vmlinux FILE, or --kcore and --kallsyms; packets alone with an --image of it"
_CODE = "import again with the binaries: --symbols FOLDER; packets alone with --image FILE:OFFSET:SIZE:ADDRESS"
_IMPORTED = {
    "bpf": "none: record user code alone (perf record -e intel_pt//u)",
    "no kernel code": _KERNEL,
    "has no code there": "import again with the kernel as it ran: --kcore and --kallsyms of the recorded boot",
    "no-kernel-code": _KERNEL,
    "jitdump": "record with the jitdump file of the program, and import again with --symbols FOLDER",
    "nothing was mapped": _CODE,
    "no-code": _CODE,
    "before-first-psb": "none: a recording that begins anywhere is understood from its first synchronisation point on",
    "missing-packets": _RECORDER,
    "overflow": _RECORDER,
}


def buffer_knob(buffer_bytes: int, recorded_bytes: int, lost_bytes: int) -> str:
    """A buffer budget that would have held everything: the present one in the ratio of what was to what was kept."""
    wanted = (
        buffer_bytes * (recorded_bytes + lost_bytes) / recorded_bytes if recorded_bytes else buffer_bytes + lost_bytes
    )
    mib = 1
    while mib * MIB < wanted and mib < _MOST_MIB:
        mib *= 2
    return f"permille trace --buffer {mib}MiB, or a shorter period: --for"


def decode_knob(reason: str, *, imported: bool = False) -> str:
    """For a stretch that could not be decoded. `imported`: another tool recorded it."""
    lowered = reason.lower()
    if imported:
        return next((knob for word, knob in _IMPORTED.items() if word in lowered), "")
    known = {
        "missing-packets": "permille trace with larger buffers: --buffer, or for a shorter time: --for",
        "nothing was mapped": "none of yours, as no program runs there: permille support-bundle, and report it",
        "missing": _BINARY,
        "no-code": _BINARY,
        "no file": "none: the code was gone before it could be copied",
        "synchronization": "permille trace with a smaller --psb-period",
        "overflow": "permille trace with fewer packets: --no-cyc",
    }
    return next((knob for word, knob in known.items() if word in lowered), "report it: permille support-bundle")
