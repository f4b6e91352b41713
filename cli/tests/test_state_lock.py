"""One `permille up` for a state folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from permille.cli.supervision.state_lock import holder, state_lock
from permille.mesh.errors import FailedPrecondition, PermissionDenied

HOLD = """
import sys, time
from pathlib import Path
from permille.cli.supervision.state_lock import state_lock
with state_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_holder_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    try:
        with pytest.raises(FailedPrecondition) as raised, state_lock(tmp_path):
            pass
        assert raised.value.reason == "ALREADY_UP"
        assert str(first.pid) in raised.value.message
        assert holder(tmp_path) == first.pid
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    # A killed holder leaves nothing behind.
    assert holder(tmp_path) == 0
    with state_lock(tmp_path):
        assert holder(tmp_path) == os.getpid()


def test_the_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    with state_lock(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionDenied, match="file/state") as raised, state_lock(tmp_path / "file" / "state"):
        pass
    assert "--state-dir" in raised.value.help
