"""Every call that is decoded from vpt's packets is one that the stack pointer tells of, as long and by the same caller."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from permille.controller.domain.vpt_layout import Flags

from tests.ground_truth.conftest import PTCORE
from tests.ground_truth.test_ground_truth import OPTIONS, WORKLOADS

RESULT = re.compile(r"equal (\d+) cut (\d+) unclear (\d+)")


@pytest.fixture(scope="session")
def frames() -> Callable[[Path, int], str]:
    """What the comparison says of a stream of a recording; fails where calls differ."""
    command = ["cargo", "build", "-q", "--release", "-p", "pt-calls", "--example", "frames"]
    subprocess.run(command, cwd=PTCORE, check=True)
    program = Path(os.environ.get("CARGO_TARGET_DIR", PTCORE / "target")) / "release/examples/frames"

    def compare(folder: Path, stream: int) -> str:
        done = subprocess.run(
            [program, str(folder), str(stream)], check=False, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"stream {stream}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    return compare


def equal(recording: Any, frames: Callable[[Path, int], str]) -> int:
    """Asserts that the calls of every stream are those that were made, and returns how many were compared."""
    assert recording.page.unexplained == 0
    total = [0, 0, 0]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        streams = [header.index for header in recording.streams()]
        for told in pool.map(lambda stream: frames(recording.folder, stream), streams):
            numbers = RESULT.search(told)
            assert numbers is not None, told
            total = [one + int(more) for one, more in zip(total, numbers.groups(), strict=True)]
    compared, cut, unclear = total
    # What is open at the end, and what ended by a jump into a function that was entered before the recording began.
    assert cut <= 20 * len(streams) + compared // 100, total
    # Signals and changes of the code.
    assert unclear <= 20 * len(streams) + compared // 10, total
    return compared


def assert_are_what_was_called(lab: Any, frames: Any, workload: str, option: str, calls: int) -> None:
    flags, options = OPTIONS[option]
    with lab.busy(workload) as target:
        target.record_until(calls, lambda it: equal(it, frames), flags, period_ms=250, **options)


@pytest.mark.parametrize(
    ("workload", "option"),
    [("program", "everything"), ("redis", "frequent PSB and MTC"), ("python", "no return compression")],
)
def test_the_decoded_calls_are_those_that_were_made(lab: Any, frames: Any, workload: str, option: str) -> None:
    assert_are_what_was_called(lab, frames, workload, option, 5_000)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_hundred_thousand_calls(lab: Any, frames: Any, workload: str) -> None:
    assert_are_what_was_called(lab, frames, workload, "everything", 100_000)
