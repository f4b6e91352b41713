"""What is known about the cores that a target may run on, and what its plan has to satisfy."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from permille.allocator.domain.learned import Rate
from permille.allocator.domain.pages import MIB
from permille.mesh.errors import InvalidArgument

MIN_BUFFER_BYTES = 4 * MIB
MAX_BUFFER_BYTES = 128 * MIB
DEFAULT_BUDGET_BYTES = 500 * MIB


class Binding(enum.Enum):
    """How a target comes to its cores: a set of its own, or a share of what all tasks have together."""

    CPU_SET = "CPU set"
    CPU_SHARE = "CPU share"


@dataclass(frozen=True)
class CoreUse:
    """One core that the target may run on.

    `others`: share of the core's time that anybody but the target had lately, 0 to 1. `runs`: the share that the target
    had in each slice of its history, oldest first, each 0 to 1; equally long for all cores, empty where nobody recorded
    switches. `current`: a thread of the target is there, or was when it last ran. `cache`: cores with the same number
    share their last-level cache, within which the scheduler looks for an idle core first.
    """

    core: int
    others: float = 0.0
    runs: tuple[float, ...] = ()
    current: bool = False
    cache: int = 0

    @property
    def own(self) -> float:
        """The target's mean share of the core's time over its history."""
        return math.fsum(self.runs) / len(self.runs) if self.runs else 0.0

    @property
    def room(self) -> float:
        """Share of the core's time that nobody else takes."""
        return 1.0 - self.others


@dataclass(frozen=True)
class CoreWish:
    """What a plan has to satisfy. Sizes in bytes, times in ms.

    `cores`: all that affinity and cpuset leave; `online`: how many the machine has. `quota`: cores' worth of time that
    cpu.max allows. `weight`: of its cgroup against those beside it, 1 as much. `threads`: of the target. `slice_ms`:
    length of one slice of the history. `pressure`: PSI, percent of the last 10 s in which some task waited for memory.
    `seed` decides which cores are sampled: the same wish and the same seed give the same plan. `binding`: forced, or
    None to have it found out.
    """

    cores: Sequence[CoreUse]
    online: int
    period_ms: int
    rate: Rate
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    quota: float = math.inf
    weight: float = 1.0
    threads: int = 1
    slice_ms: int = 100
    pressure: float = 0.0
    seed: int = 0
    binding: Binding | None = None
    min_buffer_bytes: int = MIN_BUFFER_BYTES
    max_buffer_bytes: int = MAX_BUFFER_BYTES


def check(wish: CoreWish) -> None:
    """Raises InvalidArgument (reason INVALID_BUFFER_WISH, metadata `field`) for values without a meaning."""
    if not wish.cores:
        raise invalid("cores", "empty", "name the cores that the target may run on")
    numbers = [use.core for use in wish.cores]
    if len(set(numbers)) != len(numbers):
        twice = next(core for core in numbers if numbers.count(core) > 1)
        raise invalid("cores", f"naming core {twice} twice", "name every core once")
    if wish.online < len(numbers):
        raise invalid(
            "online", str(wish.online), f"the target may run on {len(numbers)} cores, at least those are there"
        )
    slices = {len(use.runs) for use in wish.cores}
    if len(slices) > 1:
        raise invalid("runs", f"of {min(slices)} to {max(slices)} slices", "give every core the same number of slices")
    for use in wish.cores:
        for share in (use.others, *use.runs):
            if not 0 <= share <= 1:
                raise invalid("cores", f"giving core {use.core} a share of {share}", "a share is between 0 and 1")
    sizes = ("budget_bytes", "min_buffer_bytes", "max_buffer_bytes")
    for field in (*sizes, "period_ms", "quota", "weight", "threads", "slice_ms"):
        if not getattr(wish, field) > 0:
            raise invalid(field, str(getattr(wish, field)), "it has to be more than 0")
    if not 0 <= wish.pressure <= 100:
        raise invalid("pressure", str(wish.pressure), "it is a percentage: 0 to 100")
    if wish.max_buffer_bytes < wish.min_buffer_bytes:
        way_out = f"it has to be at least min_buffer_bytes ({wish.min_buffer_bytes})"
        raise invalid("max_buffer_bytes", str(wish.max_buffer_bytes), way_out)


def invalid(field: str, value: str, way_out: str) -> InvalidArgument:
    return InvalidArgument(f"{field} is {value}", reason="INVALID_BUFFER_WISH", help=way_out, metadata={"field": field})
