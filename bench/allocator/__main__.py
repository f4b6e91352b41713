"""What share of a target's instructions several ways of dividing a trace budget keep, on schedules of real loads.

The machine's schedule is recorded by sched_switch while the load runs, with everything else that happens to run, and
the plans are replayed over it. A budget that holds everything is no test: it is what the target writes in a session on
average, and at least the smallest buffer for every core. The same schedules are replayed on more cores
(virtual_cores.py says what of that is real). On an idle machine a target with several busy threads fills the few cores
that there are, and no division is better than another; so each load is recorded beside another one, too.

Held against: the same on every core where the target may run (what one does who knows nothing of its habits), the same
on every core of the machine, and, harder, the same on every core that the target used lately.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from allocator.loads import LOADS, NEIGHBOURS, running
from allocator.replay import PLANNERS, captured_shares, mean_bytes, sessions, with_budget
from allocator.schedule import Schedule, record
from allocator.virtual_cores import on_cores
from figures import Figure, publish, ratios
from permille.allocator.domain.core_use import MIN_BUFFER_BYTES

ROUNDS = int(os.environ.get("PERMILLE_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("PERMILLE_BENCH_SECONDS", "10"))
# Of the switches; the recorder can be kept from its core for too long.
MOST_DROPPED = 0.001
VIRTUAL = (8, 16)
VIRTUAL_SET = 2


def main() -> None:
    shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(ROUNDS):
        for load in LOADS:
            for case, schedule, allowed in cases(load, number):
                recorded_sessions = list(sessions(schedule, allowed))
                if not recorded_sessions:
                    raise SystemExit(f"{load} did not run while it was recorded: is the machine overloaded?")
                budget = max(mean_bytes(recorded_sessions), schedule.cores * MIN_BUFFER_BYTES)
                kept = captured_shares(with_budget(recorded_sessions, budget), PLANNERS)
                for planner, share in kept.items():
                    shares[f"{load}, {case}"][planner].append(share)
                print(f"round {number + 1}: {load}, {case}: " + ", ".join(f"{n} {s:.1%}" for n, s in kept.items()))
    publish(
        "allocator", {name: figure for case, each in shares.items() for name, figure in figures(case, each).items()}
    )


def cases(load: str, seed: int) -> list[tuple[str, Schedule, frozenset[int]]]:
    """Recordings alone, beside another load and bound to the last core, and the first one on more cores."""
    free, crowded = recorded(load), recorded(load, beside=(neighbour := NEIGHBOURS[load]))
    bound = recorded(load, last := (os.cpu_count() or 1) - 1)
    found = [
        (f"{free.cores} cores, CPU share", free, every(free.cores)),
        (f"{free.cores} cores, CPU share beside {neighbour}", crowded, every(free.cores)),
        (f"{bound.cores} cores, CPU set", bound, frozenset({last})),
    ]
    found += [(f"{cores} virtual cores, CPU share", on_cores(free, cores, seed), every(cores)) for cores in VIRTUAL]
    few = every(VIRTUAL_SET)
    found.append((f"{VIRTUAL[0]} virtual cores, CPU set", on_cores(free, VIRTUAL[0], seed, few), few))
    return found


def every(cores: int) -> frozenset[int]:
    return frozenset(range(cores))


def recorded(load: str, core: int | None = None, beside: str = "") -> Schedule:
    bound = "" if core is None else str(core)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="permille-bench-")))
        if beside:
            stack.enter_context(running(beside, folder / "neighbour"))
        root = stack.enter_context(running(load, folder / "load", bound))
        schedule = record(root, SECONDS, folder)
    if schedule.dropped > MOST_DROPPED * len(schedule.stretches):
        raise SystemExit(f"{schedule.dropped} of {len(schedule.stretches)} switches were lost while {load} ran")
    return schedule


def figures(case: str, shares: dict[str, list[float]]) -> dict[str, Figure]:
    ours = shares["coreset"]
    kept = {f"{case}: kept": Figure.of([100 * share for share in ours], "% of run time")}
    others = [planner for planner in shares if planner != "coreset"]
    return kept | {f"{case}: coreset / {planner}": ratios(ours, shares[planner]) for planner in others}


if __name__ == "__main__":
    main()
