"""A recorded schedule on more cores than it was recorded on.

What is real: every task's alternation of sleep and work, as recorded: how long it slept until it was woken, how much
processor time it then used until it slept again (the pieces that preemption made are put together), birth and death.

What is modelled: who gets which core. A woken task goes to its last core when that is idle, else to an idle one, else
to the shortest queue; tasks that wait share a core in slices of 3 ms; a core that falls idle takes a waiting task from
the longest queue. That is what select_task_rq_fair, the base slice and sched_balance_newidle of Linux's
kernel/sched/fair.c do, without topology and load averages. The target is there once; whatever else ran on the machine
is its neighbourhood, as often as keeps the ratio of neighbours to cores, each copy begun at another point of its life.
Sleeps are kept as recorded, also where more cores would have answered sooner. Nobody who wakes preempts: on a crowded
machine a task that sleeps often waits for longer than on Linux, and executes less (redis about half of what it did).
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from allocator.schedule import DIED, PREEMPTED, SLEPT, Schedule, Stretch

SLICE_NS = 3_000_000
ANY = frozenset[int]()


@dataclass
class Task:
    """A task's life: (sleep, work) in ns, again and again."""

    tid: int
    bursts: Sequence[tuple[int, int]]
    allowed: frozenset[int] = ANY
    at: int = 0
    left: int = 0
    core: int = -1


@dataclass
class Core:
    running: Task | None = None
    since: int = 0
    turn: int = 0
    queue: deque[Task] = field(default_factory=deque)


def lives(schedule: Schedule) -> dict[int, list[tuple[int, int]]]:
    """By tid, the bursts: sleep before it, and processor time until the next sleep."""
    bursts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    slept_at: dict[int, int] = {}
    work: dict[int, int] = defaultdict(int)
    sleep: dict[int, int] = {}
    for one in schedule.stretches:
        if not work[one.tid]:
            since = slept_at.get(one.tid, schedule.begin)
            sleep[one.tid] = woken(schedule, one.tid, since, one.begin) - since
        work[one.tid] += one.end - one.begin
        if one.left != PREEMPTED:
            bursts[one.tid].append((sleep[one.tid], work.pop(one.tid)))
            slept_at[one.tid] = one.end
    for tid, ns in work.items():
        if ns:
            bursts[tid].append((sleep[tid], ns))
    return bursts


def woken(schedule: Schedule, tid: int, since: int, begin: int) -> int:
    """When it was woken; where the kernel did not report that, when it ran."""
    wakes = schedule.wakes.get(tid, [])
    index = bisect_left(wakes, since)
    return wakes[index] if index < len(wakes) and wakes[index] <= begin else begin


def on_cores(schedule: Schedule, cores: int, seed: int, allowed: frozenset[int] = ANY) -> Schedule:
    """The schedule on `cores` cores; the target alone is kept to `allowed`, unless that is empty."""
    chance = random.Random(seed)
    tasks = []
    fresh = itertools.count(1 << 23)
    for tid, bursts in sorted(lives(schedule).items()):
        if tid in schedule.target:
            tasks.append(Task(tid, bursts, allowed))
            continue
        for _ in range(max(1, cores // schedule.cores)):
            turn = chance.randrange(len(bursts))
            tasks.append(Task(next(fresh), [*bursts[turn:], *bursts[:turn]]))
    stretches = Machine(cores, chance).run(tasks, schedule.begin, schedule.end)
    stretches.sort()
    return Schedule(cores, schedule.begin, schedule.end, stretches, set(schedule.target))


class Machine:
    """The cores, and what will happen next on them."""

    def __init__(self, cores: int, chance: random.Random) -> None:
        self.cores = [Core() for _ in range(cores)]
        self.idle = set(range(cores))
        self.waiting = 0
        self.chance = chance
        self.order = itertools.count()
        self.agenda: list[tuple[int, int, Task | None, int, int]] = []
        self.stretches: list[Stretch] = []

    def run(self, tasks: Sequence[Task], begin: int, end: int) -> list[Stretch]:
        for task in tasks:
            if task.bursts:
                task.left = task.bursts[0][1]
                self.expect(begin + task.bursts[0][0], task=task)
        while self.agenda:
            now, _, woken_one, core, turn = heapq.heappop(self.agenda)
            if now >= end:
                break
            if woken_one is not None:
                self.wake(woken_one, now)
            elif self.cores[core].turn == turn:
                self.yield_core(core, now)
        return self.stretches

    def expect(self, when: int, *, task: Task | None = None, core: int = -1, turn: int = 0) -> None:
        heapq.heappush(self.agenda, (when, next(self.order), task, core, turn))

    def wake(self, task: Task, now: int) -> None:
        choice = self.place(task)
        task.core = choice
        if choice in self.idle:
            self.idle.discard(choice)
            self.start(choice, task, now)
        else:
            self.cores[choice].queue.append(task)
            self.waiting += 1

    def place(self, task: Task) -> int:
        if task.core in self.idle:
            return task.core
        allowed = task.allowed or range(len(self.cores))
        if idle := [core for core in allowed if core in self.idle]:
            return self.chance.choice(idle)
        return min(allowed, key=lambda core: (len(self.cores[core].queue), core != task.core))

    def start(self, number: int, task: Task, now: int) -> None:
        core = self.cores[number]
        core.running, core.since, core.turn = task, now, core.turn + 1
        self.expect(now + min(task.left, SLICE_NS), core=number, turn=core.turn)

    def yield_core(self, number: int, now: int) -> None:
        core = self.cores[number]
        task = core.running
        assert task is not None
        task.left -= now - core.since
        task.core = number
        if task.left:
            self.stretches.append(Stretch(core.since, now, number, task.tid, PREEMPTED))
            core.queue.append(task)
            self.waiting += 1
        else:
            task.at += 1
            last = task.at == len(task.bursts)
            self.stretches.append(Stretch(core.since, now, number, task.tid, DIED if last else SLEPT))
            if not last:
                sleep, task.left = task.bursts[task.at]
                self.expect(now + sleep, task=task)
        self.next_task(number, now)

    def next_task(self, number: int, now: int) -> None:
        core = self.cores[number]
        core.running = None
        task = core.queue.popleft() if core.queue else self.pulled(number)
        if task is None:
            self.idle.add(number)
            core.turn += 1
            return
        self.waiting -= 1
        self.start(number, task, now)

    def pulled(self, number: int) -> Task | None:
        if not self.waiting:
            return None
        for other in sorted(self.cores, key=lambda core: -len(core.queue)):
            for task in other.queue:
                if not task.allowed or number in task.allowed:
                    other.queue.remove(task)
                    return task
        return None
