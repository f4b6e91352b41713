"""Records every context switch of the machine, in a process of its own.

`recorder.py OBJECT FILE SECONDS` prints `begun` when it records, then appends
24-byte events (switches.bpf.c) to FILE, and prints how many the ring had no room for.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

from permille.mesh.bpf import BpfObject, Ring
from permille.mesh.errors import PermilleError

DRAIN_S = 0.05
KEY, COUNT = bytes(4), struct.Struct("<Q")


def main() -> None:
    program, path, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    try:
        loaded = BpfObject(program)
    except PermilleError as error:
        raise SystemExit(f"{error.message}; {error.help}") from None
    # Waiting for a core would lose events.
    os.setpriority(os.PRIO_PROCESS, 0, -15)
    loaded.map("dropped").put(KEY, COUNT.pack(0))
    ring = Ring(loaded.map("events"), 4 << 20, 24)
    attached = [loaded.attach(name) for name in ("on_birth", "on_wake", "on_switch")]
    print("begun", flush=True)
    end = time.monotonic() + seconds
    with path.open("wb") as file:
        while time.monotonic() < end:
            time.sleep(DRAIN_S)
            file.write(b"".join(ring.drain()))
    for one in attached:
        one.detach()
    print(COUNT.unpack(loaded.map("dropped").get(KEY, COUNT.size))[0], flush=True)


if __name__ == "__main__":
    main()
