"""Memory of a decode against the length of the trace: a trace of a real processor, from PSB to PSB again and again.

`python bench/memory [MEGABYTES]`, 1,000 by default. Each length is decoded in a process of its own, which takes the
calls in batches, in Arrow's columns, as the service does. And against the number of processes that took turns on a
core, each with code of its own and the same short trace.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, publish
from permille.decoder.domain.ptcore_columns import primitive_array
from permille.ptcore import Capture, Decoder, Image, PtConfig, decode_threads

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("PERMILLE_SHARED", ROOT.parent / "shared"))
TRACE = SHARED / "data/pt/griffin/last.griffin.gz"
SHORT_TRACE = SHARED / "data/pt/griffin/hello.griffin.gz"
PSB = b"\x02\x82" * 8
MEGABYTES = 1000
PROCESSES = (40, 160)


def main() -> None:
    for name, what in (("decode", decode), ("decode-processes", decode_processes)):
        if sys.argv[1:2] == [name]:
            print(json.dumps(what(int(sys.argv[2]))))
            return
    most = int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES
    found: dict[str, Figure] = {}
    for megabytes in (most // 100 or 1, most // 10 or 1, most):
        told = told_by("decode", megabytes)
        limit = f"at most {2**30 / 1e9 * megabytes:,.0f} MB" if megabytes == most else ""
        found[f"peak memory, {megabytes} MB"] = Figure.of([told["peak_bytes"] / 1e6], "MB", limit)
        found[f"  of it before the decode, {megabytes} MB"] = Figure.of([told["before_bytes"] / 1e6], "MB")
        found[f"calls, {megabytes} MB"] = Figure.of([told["calls"]], "calls")
        found[f"code kept, {megabytes} MB"] = Figure.of([told["kept_bytes"] / 1e6], "MB")
    for count in PROCESSES:
        told = told_by("decode-processes", count)
        each = (told["peak_bytes"] - told["before_bytes"]) / count
        found[f"memory for each of {count} processes on a core"] = Figure.of([each / 1e6], "MB")
    publish("memory", found)


def told_by(what: str, count: int) -> dict[str, int]:
    """What a process of its own told."""
    command = [sys.executable, __file__, what, str(count)]
    told: dict[str, int] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return told


def decode(megabytes: int) -> dict[str, int]:
    """Decodes so much in this process; raises SystemExit when calls are missing."""
    stream, image = griffin(TRACE)
    stream = stream[stream.index(PSB) : stream.rindex(PSB)]
    with tempfile.TemporaryFile() as file:
        while file.tell() < megabytes * 10**6:
            file.write(stream)
        file.flush()
        packets = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        rows = 0

        def take(calls: dict[str, Any], _functions: object, _losses: object) -> None:
            nonlocal rows
            arrays = {name: primitive_array([column]) for name, column in calls.items()}
            rows += len(arrays["call"])
            packets.madvise(mmap.MADV_DONTNEED)

        # What unpacking the trace took at its height would hide what the decode takes.
        Path("/proc/self/clear_refs").write_text("5")
        before = peak_bytes()
        decoder = Decoder(image, PtConfig(6, 94, 3, 0, (0, 0), 0))
        decoded = decoder.decode(packets, [], take)
        if not rows or rows != decoded.stats["calls"]:
            raise SystemExit(f"{rows} calls came in batches, {decoded.stats['calls']} were decoded")
        return {
            "bytes": len(packets),
            "calls": rows,
            "kept_bytes": decoder.memory_bytes,
            "before_bytes": before,
            "peak_bytes": peak_bytes(),
        }


def decode_processes(count: int) -> dict[str, int]:
    """Decodes a core on which so many processes took turns; raises SystemExit when calls are missing."""
    traces = [griffin(SHORT_TRACE) for _ in range(count)]
    stream = traces[0][0]
    turns = [(number * len(stream), number + 1, number + 1, 0, 0, 0) for number in range(count)]
    images = {number + 1: image for number, (_, image) in enumerate(traces)}
    rows = 0

    def take(calls: dict[str, Any], _functions: object, _losses: object) -> None:
        nonlocal rows
        rows += len(calls["flags"])

    takes = {(0, number + 1, number + 1): take for number in range(count)}
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_bytes()
    decoded = decode_threads([(stream * count, 0, turns, True)], images, PtConfig(6, 94, 3, 0, (0, 0), 0), takes)
    calls = sum(one.stats["calls"] for one in decoded.values())
    if not rows or rows != calls or len(decoded) != count:
        raise SystemExit(f"{rows} calls came in batches, {calls} were decoded of {len(decoded)} processes")
    return {"before_bytes": before, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """The most memory that this process had since the peak was reset, mapped files included."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def griffin(path: Path) -> tuple[bytes, Image]:
    """The packets of a container's first thread, and the code of its process."""
    capture = Capture(path)
    stream = capture.read(0, 0, capture.streams()[0].size_bytes)
    image = Image()
    with tempfile.NamedTemporaryFile() as code:
        listed = capture.list_code(code.name)
        data = Path(code.name).read_bytes()
    ((_, changes),) = listed.processes
    for change in changes:
        image.code(change.epoch, change.address, data[change.code_offset : change.code_offset + change.size_bytes])
    return stream, image


if __name__ == "__main__":
    main()
