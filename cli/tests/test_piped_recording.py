"""When a recording was written: it ended then."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from permille.cli.piped_recording import written_ns


@pytest.mark.parametrize("name", ["trace.json", "data", "manifest.json", "pt.bin"])
def test_a_folder_was_written_when_the_file_was_that_tells_its_recording(tmp_path: Path, name: str) -> None:
    (tmp_path / "kcore_dir").mkdir()
    recording = tmp_path / name
    recording.touch()
    os.utime(recording, ns=(1, 5_000_000_000))
    os.utime(tmp_path, ns=(1, 3_000_000_000))
    assert written_ns(tmp_path) == written_ns(recording) == 5_000_000_000


def test_a_folder_without_a_recording_has_its_own_time(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(1, 3_000_000_000))
    assert written_ns(tmp_path) == 3_000_000_000


def test_a_recording_of_the_future_was_written_now(tmp_path: Path) -> None:
    os.utime(tmp_path, (1, 20_000_000_000))
    assert written_ns(tmp_path) <= time.time_ns()
