"""Memory does not grow with the length of the trace, and with each thread of it by what that one ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"
MEGABYTES = 100
PEAK = "peak memory"


@pytest.mark.slow
def test_a_long_trace_takes_no_more_memory_than_a_short_one_and_each_process_as_much_as_another() -> None:
    shared = Path(os.environ.get("PERMILLE_SHARED", BENCH.parents[1] / "shared"))
    if not (shared / "data/pt/griffin").exists():
        pytest.skip(f"no reference data at {shared}: set PERMILLE_SHARED")
    done = subprocess.run(
        [sys.executable, BENCH / "memory", str(MEGABYTES)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(BENCH)},
    )
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    short, long = (f"{megabytes} MB" for megabytes in (MEGABYTES // 100, MEGABYTES))
    peak, before = (figures[f"{name}, {long}"]["value"] for name in (PEAK, "  of it before the decode"))
    # As much as a GiB is for a gigabyte of packets.
    assert peak - before <= MEGABYTES * 2**30 / 1e9
    # The short one fills no batch of rows.
    assert peak <= figures[f"{PEAK}, {short}"]["value"] + 40
    few, many = (one["value"] for name, one in figures.items() if name.startswith("memory for each of"))
    assert 0 < many <= 2 * few
