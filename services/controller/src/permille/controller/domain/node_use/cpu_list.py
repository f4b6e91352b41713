"""Lists of cores as the kernel writes them: `0-3,8` (cpuset(7), "List format")."""

from __future__ import annotations

from pathlib import Path

ONLINE = Path("/sys/devices/system/cpu/online")


def parse(text: str) -> frozenset[int]:
    """The cores of a list; an empty one has none. Raises ValueError naming what is no list."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        try:
            cores.update(range(int(first), int(last or first) + 1))
        except ValueError:
            raise ValueError(f"{text.strip()!r} is no list of cores such as 0-3,8") from None
    return frozenset(cores)


def online(file: Path = ONLINE) -> frozenset[int]:
    """Those that can run something now."""
    return parse(file.read_text())
