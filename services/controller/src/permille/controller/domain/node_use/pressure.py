"""Memory pressure of the machine: pressure stall information (Documentation/accounting/psi.rst of Linux)."""

from __future__ import annotations

from pathlib import Path

MEMORY = Path("/proc/pressure/memory")


def some_avg10(path: Path = MEMORY) -> float:
    """Percent of the last 10 s in which some task waited for memory; 0 where the kernel does not keep PSI."""
    try:
        text = path.read_text()
    except OSError:
        return 0.0
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind == "some":
            return float(dict(field.split("=") for field in fields)["avg10"])
    return 0.0
