"""Events of the kernel's own driver of the trace unit: how they are opened, and its refusals as errors."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

from permille.controller.domain import perf_layout as perf
from permille.controller.domain.not_on_this_machine import NotOnThisMachine
from permille.controller.domain.perf_layout import Attr, AttrFlags
from permille.controller.domain.pt_model import CPUINFO, NO_PT, PMU, traces
from permille.controller.domain.session import TraceOptions
from permille.mesh.errors import FailedPrecondition, Internal, PermilleError, ResourceExhausted

BACKEND = "perf"
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
USER_CODE = AttrFlags.EXCLUDE_KERNEL | AttrFlags.EXCLUDE_HV
# What tells of processes and their code; `perf_records.parse` wants the last one and SAMPLED.
IMAGE = (
    AttrFlags.MMAP | AttrFlags.MMAP2 | AttrFlags.COMM | AttrFlags.COMM_EXEC | AttrFlags.TASK | AttrFlags.SAMPLE_ID_ALL
)
SAMPLED = perf.SAMPLE_TID | perf.SAMPLE_TIME | perf.SAMPLE_CPU
_LIBC = ctypes.CDLL(None, use_errno=True)


def open_event(attr: Attr, pid: int, cpu: int) -> int:
    """The file of an event of a thread (0: this one) on a core (-1: any). Raises OSError."""
    attr.size = ctypes.sizeof(attr)
    opened = _LIBC.syscall(
        perf.SYS_PERF_EVENT_OPEN, ctypes.byref(attr), pid, cpu, -1, ctypes.c_ulong(perf.FLAG_FD_CLOEXEC)
    )
    if opened < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(opened)


def event_of(options: TraceOptions, pmu: Path = PMU, cpuinfo: Path = CPUINFO) -> Attr:
    """Packets of a thread's user code and of what it starts, and records of switches, mappings and forks.

    Raises NotOnThisMachine without a driver.
    """
    try:
        number = int((pmu / "type").read_text())
    except OSError:
        if not traces(cpuinfo):
            raise NotOnThisMachine(BACKEND, NO_PT, "use hardware with Intel PT") from None
        raise NotOnThisMachine(
            BACKEND,
            "the processor has Intel PT, but its kernel offers no intel_pt",
            "use a kernel whose perf drives the trace unit, or the kernel module",
        ) from None
    wanted = {
        "tsc": options.tsc,
        "mtc": options.mtc,
        "mtc_period": options.mtc_freq if options.mtc else 0,
        "cyc": options.cyc,
        "psb_period": options.psb_freq,
        "noretcomp": not options.return_compression,
    }
    return Attr(
        type=number,
        config=sum(config_bits(pmu, name, int(value)) for name, value in wanted.items() if value),
        sample_type=SAMPLED,
        flags=AttrFlags.DISABLED | AttrFlags.INHERIT | USER_CODE | IMAGE | AttrFlags.CONTEXT_SWITCH,
    )


def config_bits(pmu: Path, name: str, value: int) -> int:
    """A value at the place that the driver's `format` says. Raises NotOnThisMachine where it has none."""
    try:
        place = (pmu / "format" / name).read_text()
    except OSError:
        place = ""
    found = re.fullmatch(r"config:(\d+)(?:-\d+)?\s*", place)
    if found is None:
        raise NotOnThisMachine(
            BACKEND, f"its driver of intel_pt does not offer {name}", "trace with fewer packets: --no-cyc, --no-mtc"
        )
    return value << int(found[1])


def refused(error: OSError) -> PermilleError:
    """What a refusal of the kernel means, with the way out."""
    if error.errno in (errno.EACCES, errno.EPERM):
        paranoid = PARANOID.read_text().strip() if PARANOID.exists() else "?"
        return NotOnThisMachine(
            BACKEND,
            f"the kernel does not let this user ({error.strerror}; perf_event_paranoid is {paranoid})",
            "run the controller as root, or give it CAP_PERFMON and CAP_IPC_LOCK",
        )
    if error.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV):
        return NotOnThisMachine(
            BACKEND,
            f"its driver of intel_pt does not take what was asked for ({error.strerror})",
            "trace with fewer packets: --no-cyc, --no-mtc; choose another --psb-period or --mtc-freq",
        )
    if error.errno == errno.EBUSY:
        return FailedPrecondition(
            "somebody else records with intel_pt: another perf, or permille's kernel module",
            reason="RECORDER_REFUSED",
            help="wait until that recording ends, or end it",
            retry_after_s=1.0,
        )
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return ResourceExhausted(
            f"perf cannot have an event for each thread and core, or their buffers: {error.strerror}",
            reason="TRACE_MEMORY_FULL",
            help="lower budget_bytes, raise `ulimit -n`, or use the kernel module, which needs one file",
            retry_after_s=1.0,
        )
    return Internal(f"perf_event_open failed: {error}", reason="RECORDER_REFUSED", help="see `dmesg`")
