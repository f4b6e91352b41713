"""How much of the truth short recordings tell, alone and merged, and what stopping in time saves.

Several instances of each program run under the same load. First an operation with adaptive rounds begins without
knowing anything of the program. Then the instances are recorded in turn, again and again for each period. The truth is
one much longer recording of each instance, together; that what is decoded is what ran is shown with one instance of
each program, by the recorder's own log of every block. Accuracy is (2 - L1 distance of the two distributions of
executed functions) / 2, by calls and by instructions.

PERMILLE_BENCH_PROGRAMS (redis,cpython,pigz,nginx,memcached), PERMILLE_BENCH_INSTANCES (2), PERMILLE_BENCH_RECORDINGS
(10, of each period), PERMILLE_BENCH_TRUTH_MS (5000), PERMILLE_BENCH_LOG (1; 0: no log, and no Rust for its comparison).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from coverage.loads import LOADS, NAMES, Running
from coverage.mesh_calls import MeshCalls, mesh_calls
from coverage.truth_log import compared
from figures import Figure, publish
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.accuracy import accuracy
from permille.mesh.errors import PermilleError
from workload import mesh

PROGRAMS = os.environ.get("PERMILLE_BENCH_PROGRAMS", ",".join(LOADS)).split(",")
INSTANCES = int(os.environ.get("PERMILLE_BENCH_INSTANCES", "2"))
RECORDINGS = int(os.environ.get("PERMILLE_BENCH_RECORDINGS", "10"))
TRUTH_MS = int(os.environ.get("PERMILLE_BENCH_TRUTH_MS", "5000"))
LOG = os.environ.get("PERMILLE_BENCH_LOG", "1") == "1"
PERIODS_MS = (100, 500, 1000)
MERGED = (1, 2, 3, 5, 10)
MOST_ROUNDS = 10
ENOUGH = 0.95
BUFFER_BYTES = 1 << 30
MIB = 1 << 20
WARM_S = 0.5
ATTEMPTS = 5
_Result = TypeVar("_Result")
# By number, which is the same in every session of one binary: calls and own instructions.
Counts = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Recorded:
    """One session: what ran, and its size."""

    counts: Counts
    raw_bytes: int
    lost_bytes: int


def main() -> None:
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="permille-bench-") as state:
        os.environ["PERMILLE_STATE_DIR"] = state
        with mesh(), mesh_calls() as calls:
            for program in PROGRAMS:
                with ExitStack() as stack:
                    running = []
                    for number in range(INSTANCES):
                        folder = Path(state) / f"{program}-{number}"
                        folder.mkdir()
                        running.append(stack.enter_context(LOADS[program](folder)))
                    for one in running:
                        calls.wait_until_recordable(one.pid)
                        # Who rests does not end.
                        stack.callback(one.go_on)
                    if LOG:
                        figures |= as_logged(program, running[0])
                    figures |= measured(calls, program, running)
    print(table(figures), flush=True)
    publish("coverage", figures)


def as_logged(program: str, one: Running) -> dict[str, Figure]:
    """That the truth which everything is held against is what ran."""
    agreement = compared(one.pid)
    return {
        f"{program}: decoded as the recorder's log says": Figure.of([agreement.equal], "instructions", "others: 0"),
        f"{program}: of the log not decoded": Figure.of([agreement.missing], "instructions", "behind the last packet"),
    }


def measured(calls: MeshCalls, program: str, running: Sequence[Running]) -> dict[str, Figure]:
    adaptive = patiently(lambda: calls.record(by_rounds(NAMES[program])))
    for done in adaptive.rounds:
        print(f"{program}: {done.new_functions} new of {done.functions} functions; {done.reason}", flush=True)
    recordings: dict[int, list[Recorded]] = {}
    for period in PERIODS_MS:
        found = [recorded(calls, alone(calls, running, number, period)) for number in range(RECORDINGS)]
        recordings[period] = found
        size = sum(one.raw_bytes for one in found) / MIB
        print(f"{program}: {RECORDINGS} of {period / 1000:g} s, {size:.1f} MiB", flush=True)
    truths = [recorded(calls, alone(calls, running, number, TRUTH_MS)) for number in range(len(running))]
    truth = merged(one.counts for one in truths)
    size = sum(one.raw_bytes for one in truths) / MIB
    print(f"{program}: the truth has {len(truth)} functions, {size:.1f} MiB", flush=True)
    figures: dict[str, Figure] = {}
    for period, found in recordings.items():
        for count in (count for count in MERGED if count <= RECORDINGS):
            sets = [[found[(first + n) % RECORDINGS] for n in range(count)] for first in range(RECORDINGS)]
            for index, measure in enumerate(("calls", "instructions")):
                base = distribution(truth, index)
                shares = [
                    100 * accuracy(distribution(merged(one.counts for one in some), index), base) for some in sets
                ]
                figures[accuracy_name(program, period, count, measure)] = Figure.of(
                    shares, "% accurate", "published: 83.7, 82.6, 86.2; merging up to +11"
                )
    lost = sum(one.lost_bytes for found in (*recordings.values(), truths) for one in found)
    figures[f"{program}: lost"] = Figure.of([lost / MIB], "MiB", "of all recordings")
    adaptive_sessions = [recorded(calls, session) for session in adaptive.sessions]
    return figures | saved(program, adaptive_sessions, recordings[max(PERIODS_MS)], truth)


def accuracy_name(program: str, period_ms: int, merged_sessions: int, measure: str) -> str:
    """Of a figure."""
    return f"{program}, {period_ms / 1000:g} s, {merged_sessions} merged, {measure}"


def table(figures: Mapping[str, Figure]) -> str:
    """Accuracy by calls, in percent: the medians."""
    counts = [count for count in MERGED if count <= RECORDINGS]
    lines = ["", "accuracy by calls, %    merged" + "".join(f"{count:>8}" for count in counts)]
    for program in PROGRAMS:
        for period in PERIODS_MS:
            values = [figures[accuracy_name(program, period, count, "calls")].value for count in counts]
            cells = "".join(f"{value:>8.1f}" for value in values)
            lines.append(f"{program:<12} {period / 1000:>4g} s            {cells}")
    return "\n".join([*lines, ""])


def saved(
    program: str, adaptive: Sequence[Recorded], recordings: Sequence[Recorded], truth: Counts
) -> dict[str, Figure]:
    """The adaptive operation against the fixed plan: all recordings of the longest period."""
    everything = set(truth).union(*(one.counts for one in recordings))
    seen: set[int] = set()
    adaptive_sizes, adaptive_shares = [], []
    for one in adaptive:
        seen |= one.counts.keys()
        adaptive_sizes.append(one.raw_bytes)
        adaptive_shares.append(len(seen) / len(everything | seen))
    seen = set()
    fixed_shares = []
    for recording in recordings:
        seen |= recording.counts.keys()
        fixed_shares.append(len(seen) / len(everything))
    fixed = sum(one.raw_bytes for one in recordings)
    figures = {
        "rounds": Figure.of([len(adaptive)], "rounds", f"at most {MOST_ROUNDS}"),
        "rounds, bytes": Figure.of([sum(adaptive_sizes) / MIB], "MiB"),
        "rounds, functions seen": Figure.of([100 * adaptive_shares[-1]], "%", "of all that any recording saw"),
        "fixed plan, bytes": Figure.of([fixed / MIB], "MiB", f"{RECORDINGS} recordings of 1 s"),
        "fixed plan, functions seen": Figure.of([100 * fixed_shares[-1]], "%"),
        "rounds to fixed plan": Figure.of([sum(adaptive_sizes) / fixed], "of its bytes"),
    }
    for name, sizes, shares in (
        ("rounds", adaptive_sizes, adaptive_shares),
        ("fixed plan", [one.raw_bytes for one in recordings], fixed_shares),
    ):
        enough = next((n for n, share in enumerate(shares) if share >= ENOUGH), None)
        if enough is not None:
            figures[f"{name}, bytes until 95 % seen"] = Figure.of([sum(sizes[: enough + 1]) / MIB], "MiB")
    return {f"{program}: {name}": figure for name, figure in figures.items()}


def by_rounds(name: str) -> coverage_pb2.CoverageRequest:
    """Short at first, then what pays most."""
    return coverage_pb2.CoverageRequest(
        target=coverage_pb2.Target(process_name=name),
        purpose=coverage_pb2.PURPOSE_PROFILING,
        period_ms=min(PERIODS_MS),
        budget_bytes=BUFFER_BYTES,
        rounds=coverage_pb2.AdaptiveRounds(limit=MOST_ROUNDS),
    )


def alone(calls: MeshCalls, running: Sequence[Running], number: int, period_ms: int) -> str:
    """A session of one instance while all are at work; they rest from when it is stored."""

    def rest() -> None:
        for one in running:
            one.pause()

    def record() -> str:
        for one in running:
            one.go_on()
        time.sleep(WARM_S)
        (session,) = calls.record(once(running[number % len(running)].pid, period_ms), rest).sessions
        return str(session)

    return patiently(record)


def patiently(record: Callable[[], _Result]) -> _Result:
    """Again where a process that got no processor for seconds did not answer."""
    for _ in range(ATTEMPTS - 1):
        try:
            return record()
        except PermilleError as error:
            print(f"once more: {error.message}", flush=True)
            time.sleep(WARM_S)
    return record()


def once(pid: int, period_ms: int) -> coverage_pb2.CoverageRequest:
    return coverage_pb2.CoverageRequest(
        target=coverage_pb2.Target(pids=[pid]), period_ms=period_ms, budget_bytes=BUFFER_BYTES
    )


def recorded(calls: MeshCalls, session: str) -> Recorded:
    session_id = session.rpartition("/")[2]
    (row,) = calls.query(f"SELECT raw_bytes, lost_bytes FROM sessions WHERE session_id = '{session_id}'")
    rows = calls.query(
        "SELECT function, count(*) AS calls, CAST(sum(self_instructions) AS BIGINT) AS instructions"
        f" FROM calls WHERE session_id = '{session_id}' GROUP BY function"
    )
    counts = {one["function"]: (one["calls"], one["instructions"]) for one in rows}
    return Recorded(counts, row["raw_bytes"], row["lost_bytes"])


def merged(parts: Iterable[Counts]) -> Counts:
    calls: Counter[int] = Counter()
    instructions: Counter[int] = Counter()
    for part in parts:
        for function, (called, executed) in part.items():
            calls[function] += called
            instructions[function] += executed
    return {function: (calls[function], instructions[function]) for function in calls}


def distribution(found: Counts, index: int) -> dict[int, float]:
    return {function: both[index] for function, both in found.items()}


if __name__ == "__main__":
    main()
