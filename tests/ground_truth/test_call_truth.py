"""Every call that is decoded from vpt's packets is one that the stack pointer tells, as long and by the same caller."""

from __future__ import annotations

import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ground_truth.conftest import compared, example
from tests.ground_truth.test_ground_truth import WORKLOADS, record_until

RESULT = re.compile(r"(equal|cut|unclear) (\d+)")


@pytest.fixture(scope="session")
def frames() -> Path:
    return example("frames")


def compare(recording: Any, frames: Path, told: Counter[str]) -> int:
    """Asserts that the calls of every stream are those that were made, and returns how many are equal."""
    assert recording.page.unexplained == 0
    before = told["equal"]
    streams = [header.index for header in recording.streams()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(lambda stream: compared(frames, recording.folder, stream), streams):
            numbers = RESULT.findall(done.stdout)
            assert done.returncode == 0 and numbers, done.stdout[-2000:] + done.stderr[-2000:]
            told.update({name: int(number) for name, number in numbers})
    return told["equal"] - before


def assert_are_what_was_called(lab: Any, frames: Path, workload: str, option: str, enough: int) -> None:
    told: Counter[str] = Counter()
    record_until(lab, workload, option, enough, lambda recording: compare(recording, frames, told))
    # Streams begin and end in the midst of calls, and signals hide ends from the stack pointer.
    assert told["cut"] + told["unclear"] < told["equal"] / 2, told


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
