"""Records every context switch of the machine: a program for the system's own interpreter, to which BCC belongs.

`recorder.py FILE SECONDS` prints `begun` when it records, then appends
24-byte events (switches.c) to FILE, and prints how many the ring had no room for.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from permille.controller.domain.switches.switch_probe import RING_PAGES, Ring, mount_tracefs, require_root

DRAIN_S = 0.05


def main() -> None:
    path, seconds = Path(sys.argv[1]), float(sys.argv[2])
    require_root()
    # Waiting for a core would lose events.
    os.setpriority(os.PRIO_PROCESS, 0, -15)
    mount_tracefs()
    from bcc import BPF

    source = Path(__file__).with_name("switches.c").read_text().replace("RING_PAGES", str(RING_PAGES))
    bpf = BPF(text=source)
    ring = Ring(bpf["events"].map_fd)
    ring.drain()
    print("begun", flush=True)
    end = time.monotonic() + seconds
    with path.open("wb") as file:
        while time.monotonic() < end:
            time.sleep(DRAIN_S)
            file.write(b"".join(ring.drain()))
    print(bpf["dropped"][0].value, flush=True)


if __name__ == "__main__":
    main()
