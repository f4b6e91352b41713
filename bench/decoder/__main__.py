"""The decoder's layers against libipt, in one process, and the whole way to the tables against its core: on Griffin's
traces of real processors and on recordings of vpt.

`python bench/decoder [FOLDER]` keeps the recordings in FOLDER and takes those that are there.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from decoder.stored_sessions import store_capture, store_recording, store_several
from decoder.whole_way import whole_ways
from figures import Figure, publish, ratios
from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.vpt_control import Control
from permille.controller.domain.vpt_recording import stream_header
from permille.controller.main import PLUGIN
from permille.mesh.store import open_store
from workload import free_port, wait_for_port

ROOT = Path(__file__).parents[2]
PTCORE = ROOT / "services/decoder/ptcore"
SHARED = Path(os.environ.get("PERMILLE_SHARED", ROOT.parent / "shared"))
ROUNDS = 7
STREAM_BYTES = 12 << 20
OTHERS, OTHERS_BYTES = 12, 1 << 20
TIMES = 4
PERIOD_NS = 3 * 10**9
FLAGS = vpt.Flags.BRANCH | vpt.Flags.TSC | vpt.Flags.MTC | vpt.Flags.CYC
# Parts of what a contender's name is held against, and the promise.
PEERS = {
    "packets": ("libipt packets", "at least 3"),
    "flow": ("libipt blocks", ""),
    "edges": ("libipt blocks", ""),
    "calls": ("libipt blocks", "at least 10"),
    "calls cold": ("libipt blocks cold", "at least 4"),
}
JSON_WORK = """
import json
data = {str(n): [n, n * 1.5, "x" * (n % 17), {"a": None, "b": [True, False]}] for n in range(500)}
print("at work", flush=True)
while True:
    json.loads(json.dumps(data, sort_keys=True))
"""


def main() -> None:
    command = ["cargo", "build", "-q", "--release", "-p", "pt-bench", "--features", "libipt"]
    subprocess.run(command, cwd=PTCORE, check=True)
    bench = Path(os.environ.get("CARGO_TARGET_DIR", PTCORE / "target")) / "release/pt-bench"
    traces = [str(path) for path in sorted((SHARED / "data/pt/griffin").glob("*.griffin.gz"))]
    with folder() as recordings:
        inputs = [*traces, *(f"{name}={place}" for name, place in recorded(recordings))]
        done = subprocess.run([bench, str(ROUNDS), *inputs], check=True, stdout=subprocess.PIPE, text=True)
        results = [json.loads(line) for line in done.stdout.splitlines()]
        found = {f"{one['name']}: {what}": figure for one in results for what, figure in figures(one).items()}
        publish("decoder", found | asyncio.run(ways(recordings, [Path(trace) for trace in traces])))


async def ways(recordings: Path, traces: list[Path]) -> dict[str, Figure]:
    """The whole way of each recording against the core, in this run as well."""
    with tempfile.TemporaryDirectory(prefix="permille-bench-", dir="/dev/shm") as path:
        scratch = Path(path)
        store = open_store((scratch / "store").as_uri())
        sessions = {name: await store_recording(store, name, recordings / name, scratch) for name in PROGRAMS}
        for trace in traces:
            sessions[trace.name.removesuffix(".griffin.gz")] = await store_capture(store, trace, scratch)
        # What a decode costs however little there is to decode weighs less in a longer one.
        sessions |= {f"{name}, {TIMES} times": await store_several(store, name, TIMES) for name in PROGRAMS}
        return await whole_ways(store, sessions, scratch, ROUNDS)


def figures(result: dict) -> dict[str, Figure]:  # type: ignore[type-arg]
    """Ratios to libipt and rates of one input; raises SystemExit where the two did not decode the same."""
    theirs = result["libipt"]
    if result["losses"] or theirs["errors"] or result["instructions"] != theirs["instructions"]:
        print(
            f"{result['name']}: {result['instructions']} instructions and {result['losses']} losses, libipt: {theirs}"
        )
    found = {}
    for name, (peer, promise) in PEERS.items():
        if name not in result:
            continue
        found[f"{name} / {peer}"] = ratios(result[peer], result[name], promise)
        amount, unit = (result["bytes"], "MB/s") if name == "packets" else (result["branches"], "Mbranch/s")
        found[name] = Figure.of([amount / seconds / 1e6 for seconds in result[name]], unit)
    promise = "at least 1.8" if result["bytes"] > STREAM_BYTES // 2 else "too short to divide"
    if "edges by two" in result:
        found["edges: two threads / one"] = ratios(result["edges by one"], result["edges by two"], promise)
    if "calls of a core" in result:
        found["calls, a thread's stream against a core's"] = ratios(result["calls"], result["calls of a core"], "")
    if "calls of two cores by two" in result:
        found["calls of two cores, two flows against one"] = ratios(
            result["calls of two cores by one"], result["calls of two cores by two"], promise
        )
    if "calls by two" in result:
        found["calls, two threads against one"] = ratios(result["calls by one"], result["calls by two"], promise)
        found["calls, processor time of one thread against two"] = ratios(
            result["calls"], result["calls by two, processor"], ""
        )
    if "with overflows by two" in result:
        found["calls, two threads against one, an overflow in each MiB"] = ratios(
            result["with overflows by one"], result["with overflows by two"], ""
        )
    found["libipt blocks"] = Figure.of([result["branches"] / s / 1e6 for s in result["libipt blocks"]], "Mbranch/s")
    if "memory" in result:
        found["memory kept"] = Figure.of([result["memory"] / 2**20], "MiB")
    return found


@contextmanager
def folder() -> Iterator[Path]:
    if len(sys.argv) > 1:
        yield Path(sys.argv[1])
        return
    with tempfile.TemporaryDirectory(prefix="permille-bench-", dir="/dev/shm") as path:
        yield Path(path)


def recorded(recordings: Path) -> Iterator[tuple[str, str]]:
    """Names with the folder and the number of the stream that holds most."""
    for name, program in PROGRAMS.items():
        place = recordings / name
        if not place.exists():
            with tempfile.TemporaryDirectory(prefix="permille-bench-", dir="/dev/shm") as vpt_dir:
                program(Path(vpt_dir), place)
        sizes = {path.stem.rpartition("-")[2]: stream_header(path).written_bytes for path in place.glob("stream-*.pt")}
        yield name, f"{place}:{max(sizes, key=lambda number: sizes[number])}"


def gzip(vpt_dir: Path, place: Path) -> None:
    chance = random.Random(0)
    words = [bytes(chance.choices(b"etaoinshrdlu", k=length % 11 + 1)) for length in range(5000)]
    text = vpt_dir / "text"
    text.write_bytes(b" ".join(chance.choices(words, k=3_000_000)))
    with running(vpt_dir, "/usr/bin/gzip", "-c", text) as process:
        record(vpt_dir, process, place)


def cpython(vpt_dir: Path, place: Path) -> None:
    with running(vpt_dir, "/usr/bin/python3", "-c", JSON_WORK, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        record(vpt_dir, process, place)


def redis(vpt_dir: Path, place: Path) -> None:
    port = free_port()
    load = ["redis-benchmark", "-p", str(port), "-c", "20", "-n", "100000000", "-r", "10000", "-t", "set,get"]
    with running(vpt_dir, "/usr/bin/redis-server", "--port", str(port), "--save", "") as process:
        wait_for_port(port, process)
        benchmark = subprocess.Popen(load, stdout=subprocess.DEVNULL)
        try:
            time.sleep(1)
            record(vpt_dir, process, place)
        finally:
            benchmark.kill()
            benchmark.wait()


@contextmanager
def running(vpt_dir: Path, *command: str | Path, stdout: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    emulated = ["qemu-x86_64", "-plugin", f"{PLUGIN},dir={vpt_dir / 'vpt'}", *map(str, command)]
    process = subprocess.Popen(emulated, stdin=subprocess.DEVNULL, stdout=stdout, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def record(vpt_dir: Path, process: subprocess.Popen[str], place: Path) -> None:
    """A session, copied to `place`."""
    session = vpt_dir / "vpt" / str(process.pid)
    control = opened(session)
    page = control.page
    page.session, page.period_ns, page.flags, page.psb_freq, page.mtc_freq = b"bench", PERIOD_NS, FLAGS, 2, 3
    page.planned[0] = vpt.Planned(process.pid, 0, STREAM_BYTES)
    for index in range(1, OTHERS + 1):
        page.planned[index] = vpt.Planned(0, 0, OTHERS_BYTES)
    page.planned_count = 1 + OTHERS
    page.state = vpt.State.ARMED
    while page.state in (vpt.State.ARMED, vpt.State.ACTIVE):
        time.sleep(0.01)
    if page.state != vpt.State.FINISHED:
        raise SystemExit(f"vpt refused to record: {bytes(page.error).decode()}")
    # The sideband is a sparse file, large enough for anything.
    shutil.copytree(session, place, ignore=shutil.ignore_patterns("sideband.bin"))
    with (session / "sideband.bin").open("rb") as sideband:
        (place / "sideband.bin").write_bytes(sideband.read(page.sideband_bytes))


def opened(session: Path) -> Control:
    while True:
        try:
            return Control(session)
        except (OSError, ValueError):
            time.sleep(0.001)


PROGRAMS = {"gzip": gzip, "cpython": cpython, "redis": redis}

if __name__ == "__main__":
    main()
