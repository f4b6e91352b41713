"""The target's own run history: switch records to shares of every core's time, slice by slice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from permille.controller.domain.switches.switch_records import IN, SwitchRecord


class Switch(NamedTuple):
    """One arrival (True) or departure (False) of a thread of the target on a core; time in ns."""

    time_ns: int
    core: int
    tid: int
    arrives: bool


class Run(NamedTuple):
    """A stretch in which a thread had a core; times in ns."""

    core: int
    tid: int
    begin_ns: int
    end_ns: int


def history_of(records: Iterable[SwitchRecord]) -> Iterator[Switch]:
    """The records of a session, in time order, as a history: its times are in the records' unit."""
    for record in records:
        yield Switch(record.time, record.cpu, record.tid, record.operation == IN)


def runs_of(switches: Iterable[Switch], begin_ns: int, end_ns: int) -> Iterator[Run]:
    """The stretches within a history, from its records in time order.

    A core whose first record is a departure was held since the beginning, one whose last record is an arrival until the
    end. An arrival on a core that somebody of the target holds ends that stretch: its departure was dropped.
    """
    holder: dict[int, tuple[int, int]] = {}
    seen: set[int] = set()
    for time_ns, core, tid, arrives in switches:
        if core in holder:
            held, since = holder.pop(core)
            yield Run(core, held, since, time_ns)
        elif not arrives and core not in seen:
            yield Run(core, tid, begin_ns, time_ns)
        seen.add(core)
        if arrives:
            holder[core] = (tid, time_ns)
    for core, (tid, since) in holder.items():
        yield Run(core, tid, since, end_ns)


def shares_by_slice(runs: Iterable[Run], begin_ns: int, slices: int, slice_ns: int) -> dict[int, tuple[float, ...]]:
    """By core, the share of each slice that the stretches cover; cores without any are absent."""
    covered: dict[int, list[int]] = {}
    for run in runs:
        begin, end = max(run.begin_ns - begin_ns, 0), min(run.end_ns - begin_ns, slices * slice_ns)
        while begin < end:
            index = begin // slice_ns
            part = min(end, (index + 1) * slice_ns) - begin
            covered.setdefault(run.core, [0] * slices)[index] += part
            begin += part
    return {core: tuple(min(1.0, ns / slice_ns) for ns in parts) for core, parts in covered.items()}
