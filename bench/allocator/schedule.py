"""A recorded schedule: who had which core when, and which of it was the target."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

BPF = Path(__file__).parents[2] / "services" / "controller" / "bpf"
EVENT = struct.Struct("<QHBBIII")
SWITCH, WAKE, BIRTH = 1, 2, 3
SLEPT, PREEMPTED, DIED = 0, 1, 2
CLONE_THREAD = 0x10000


class Stretch(NamedTuple):
    """A task on a core without interruption; times in ns; `left` says why it ended (SLEPT, PREEMPTED, DIED)."""

    begin: int
    end: int
    core: int
    tid: int
    left: int


@dataclass
class Schedule:
    """All stretches in the order of their begin, and the tids that belong to the target."""

    cores: int
    begin: int
    end: int
    stretches: list[Stretch]
    target: set[int]
    wakes: dict[int, list[int]] = field(default_factory=dict)
    dropped: int = 0
    unseen: int = 0

    def target_ns(self) -> int:
        return sum(one.end - one.begin for one in self.stretches if one.tid in self.target)


def record(root: int, seconds: float, folder: Path) -> Schedule:
    """Records the whole machine; the target is the process `root` with all its descendants, those to come too."""
    path, program, here = folder / "events", folder / "switches.bpf.o", Path(__file__).parent
    subprocess.run(["make", "-s", "-f", BPF / "Makefile", f"TARGET={folder}", program], cwd=here, check=True)
    command = [sys.executable, str(here / "recorder.py"), str(program), str(path), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        if recorder.stdout.readline() != "begun\n":
            raise SystemExit(f"the recorder of the machine's schedule ended with {recorder.wait()}")
        process = psutil.Process(root)
        family = {process.pid, *(child.pid for child in process.children(recursive=True))}
        dropped = int(recorder.stdout.readline())
    events = sorted(EVENT.iter_unpack(path.read_bytes()))
    return parse(events, family, dropped, os.cpu_count() or 1)


def parse(events: Iterable[tuple[int, ...]], family: set[int], dropped: int, cores: int) -> Schedule:
    schedule = Schedule(cores, 0, 0, [], set(), defaultdict(list), dropped)
    processes: dict[int, int] = {}
    running: dict[int, tuple[int, int]] = {}
    for time, cpu, kind, left, tid, pid, following in events:
        schedule.begin = schedule.begin or time
        schedule.end = time
        if kind == WAKE:
            schedule.wakes[tid].append(time)
        elif kind == BIRTH:
            if pid in family and not following & CLONE_THREAD:
                family.add(tid)
            if following & CLONE_THREAD:
                processes[tid] = pid
        else:
            processes[tid] = pid
            came, since = running.get(cpu, (-1, time))
            if came == tid and tid:
                schedule.stretches.append(Stretch(since, time, cpu, tid, left))
            elif came not in (tid, -1):
                schedule.unseen += 1
            running[cpu] = (following, time)
    schedule.stretches.sort()
    schedule.target = {tid for tid, pid in processes.items() if tid and pid in family}
    return schedule


class LastCores:
    """Where the target's living threads were last, at any moment: what /proc/PID/task/TID/stat says."""

    def __init__(self, schedule: Schedule) -> None:
        self.moments: dict[int, list[int]] = defaultdict(list)
        self.stretches: dict[int, list[Stretch]] = defaultdict(list)
        for one in schedule.stretches:
            if one.tid in schedule.target:
                self.moments[one.tid].append(one.begin)
                self.stretches[one.tid].append(one)

    def at(self, moment: int) -> dict[int, int]:
        """By tid; a thread that has not run yet, or has died, is absent."""
        cores = {}
        for tid, moments in self.moments.items():
            index = bisect_right(moments, moment) - 1
            if index < 0:
                continue
            last = self.stretches[tid][index]
            if last.left != DIED or last.end > moment:
                cores[tid] = last.core
        return cores
