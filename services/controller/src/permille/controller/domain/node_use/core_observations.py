"""What a finished session says about the packets of its target: run time and bytes, core by core."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from permille.controller.domain.node_use.run_history import history_of, runs_of
from permille.controller.domain.switches.switch_records import SwitchRecord

NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class CoreWritten:
    """What one core's buffer holds, and whether it was full before the session ended: more was, or would have been,
    written."""

    size_bytes: int
    full: bool


@dataclass(frozen=True)
class CoreObservation:
    """One core of a finished session; `run_ms` is the target's whole time there, also past a full buffer."""

    core: int
    run_ms: float
    size_bytes: int
    full: bool


def observations(
    written: Mapping[int, CoreWritten], records: Iterable[SwitchRecord], begin: int, end: int, *, ticks_per_ms: float
) -> list[CoreObservation]:
    """Records in time order, begin and end of the recording in one unit, of which `ticks_per_ms` are a ms.

    A core without a record is left out: nobody knows how long the target had it. Of a core whose buffer was full the
    rate comes out too low, never too high, since the target went on without being recorded.
    """
    ticks: dict[int, int] = defaultdict(int)
    for run in runs_of(history_of(records), begin, end):
        ticks[run.core] += max(0, min(run.end_ns, end) - max(run.begin_ns, begin))
    return [
        CoreObservation(core, ticks[core] / ticks_per_ms, buffer.size_bytes, buffer.full)
        for core, buffer in sorted(written.items())
        if core in ticks
    ]
