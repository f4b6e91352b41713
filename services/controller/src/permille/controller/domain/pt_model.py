"""Which processor's packets these are: fields of CPUID and MSR_PLATFORM_INFO (Intel SDM volume 3, Processor Trace)."""

from __future__ import annotations

import re
from pathlib import Path

from permille.controller.domain.recording import PtModel

# The kernel's own driver tells what only CPUID and an MSR know.
PMU = Path("/sys/bus/event_source/devices/intel_pt")
CPUINFO = Path("/proc/cpuinfo")
NO_PT = "this processor (or virtual machine) has no Intel PT"
# The trace unit of kmod/qemu/unit, as kmod/qemu/unit/unit.h has it.
EMULATED = PtModel(family=6, model=94, stepping=3, tsc_ctc_ratio=(64, 1), nominal_ratio=20)


def processor(cpuinfo: Path = CPUINFO, pmu: Path = PMU) -> PtModel:
    """This machine's. What nobody tells is 0: then times between two TSC packets are estimates."""
    text = cpuinfo.read_text()
    family, model, stepping = (number(text, name) for name in ("cpu family", "model", "stepping"))
    return PtModel(family, model, stepping, ratio(pmu / "tsc_art_ratio"), first_number(pmu / "max_nonturbo_ratio"))


def traces(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor tells that it has Processor Trace."""
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    return flags is not None and "intel_pt" in flags[1].split()


def number(cpuinfo: str, name: str) -> int:
    found = re.search(rf"^{name}\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    return int(found[1]) if found else 0


def ratio(file: Path) -> tuple[int, int]:
    """TSC ticks per tick of the crystal clock, `N:M` (arch/x86/events/intel/pt.c, pt_timing_attr)."""
    try:
        above, below = file.read_text().split(":")
        return int(above), int(below)
    except (OSError, ValueError):
        return 0, 0


def first_number(file: Path) -> int:
    try:
        return int(file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
