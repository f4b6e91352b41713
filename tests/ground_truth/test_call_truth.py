"""Every call that is decoded from vpt's packets is one that the stack pointer tells, as long and by the same caller."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ground_truth.conftest import compared, example
from tests.ground_truth.test_ground_truth import OPTIONS, WORKLOADS

RESULT = re.compile(r"equal (\d+) cut (\d+) unclear (\d+)")
# What is open at the end of a stream, or ended with what was entered before the recording began.
CUT = 20


@pytest.fixture(scope="session")
def frames() -> Path:
    return example("pt-calls", "frames")


def equal(recording: Any, frames: Path) -> int:
    """Asserts that the calls of every stream are those that were made, and returns how many were compared."""
    assert recording.page.unexplained == 0
    streams = [header.index for header in recording.streams()]
    total = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(lambda stream: compared(frames, recording.folder, stream), streams):
            numbers = RESULT.search(done.stdout)
            assert done.returncode == 0 and numbers is not None, done.stdout[-2000:] + done.stderr[-2000:]
            same, cut, unclear = map(int, numbers.groups())
            # Around signals and changes of the code the stack pointer does not tell everything.
            assert cut <= CUT + same // 100 and unclear <= CUT + same // 10, done.stdout
            total += same
    return total


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
