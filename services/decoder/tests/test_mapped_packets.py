"""A mapped file is not in memory because it was read."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

from permille.decoder.domain.mapped_packets import giving_back


def resident(path: Path) -> int:
    """KiB of the mapped file in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    sizes = (next(line for line in lines if line.startswith("Rss:")) for line in lines if line.endswith(str(path)))
    return sum(int(line.split()[1]) for line in sizes)


def test_what_was_read_is_given_back_while_no_call_is_over_yet(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(bytes(16 << 20))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as packets:
        assert packets.find(b"\x01") == -1
        assert resident(path) == 16 << 10
        with giving_back(packets):
            deadline = time.monotonic() + 60
            while resident(path) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert resident(path) == 0
    with giving_back(b"in memory anyway"):
        pass
