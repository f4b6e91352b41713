"""Memory of a decode against the length of the trace: a trace of a real processor, from PSB to PSB again and again.

`python bench/memory [MEGABYTES]`, 1,000 by default. Each length is decoded in a process of its own, which takes the
calls in batches, in Arrow's columns, as the service does.
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
from permille.ptcore import Capture, Decoder, Image, PtConfig

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("PERMILLE_SHARED", ROOT.parent / "shared"))
TRACE = SHARED / "data/pt/griffin/last.griffin.gz"
PSB = b"\x02\x82" * 8
MEGABYTES = 1000


def main() -> None:
    if sys.argv[1:2] == ["decode"]:
        print(json.dumps(decode(int(sys.argv[2]))))
        return
    most = int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES
    found: dict[str, Figure] = {}
    for megabytes in (most // 100 or 1, most // 10 or 1, most):
        done = subprocess.run(
            [sys.executable, __file__, "decode", str(megabytes)], check=True, stdout=subprocess.PIPE, text=True
        )
        told = json.loads(done.stdout)
        limit = f"at most {2**30 / 1e9 * megabytes:,.0f} MB" if megabytes == most else ""
        found[f"peak memory, {megabytes} MB"] = Figure.of([told["peak_bytes"] / 1e6], "MB", limit)
        found[f"  of it before the decode, {megabytes} MB"] = Figure.of([told["before_bytes"] / 1e6], "MB")
        found[f"calls, {megabytes} MB"] = Figure.of([told["calls"]], "calls")
        found[f"code kept, {megabytes} MB"] = Figure.of([told["kept_bytes"] / 1e6], "MB")
    publish("memory", found)


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
