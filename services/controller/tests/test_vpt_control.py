"""A process is asked to record itself: how long its answer is waited for."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from permille.controller.domain import vpt_control
from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.recording import RecordingConfig, ThreadBuffers
from permille.controller.domain.session import TraceOptions
from permille.controller.domain.vpt_control import Control
from permille.mesh.errors import FailedPrecondition


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def armed(process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    """Of a process whose recorder the test is, and which has no time to answer while it is stopped."""
    monkeypatch.setattr(vpt_control, "ANSWER_S", 0.0)
    start = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    page = vpt.Control(magic=vpt.MAGIC, version=vpt.VERSION, pid=process.pid, process_start=start)
    (tmp_path / "control").write_bytes(bytes(page))
    control = Control(tmp_path)
    buffers = ThreadBuffers({process.pid: {process.pid: 0}}, 0, 0)
    control.arm(RecordingConfig("s", (process.pid,), 1000, TraceOptions(), buffers))
    return control


def test_who_gets_no_processor_is_waited_for(armed: Control) -> None:
    def answer() -> None:
        time.sleep(0.2)
        armed.page.state = vpt.State.ACTIVE

    answering = threading.Thread(target=answer)
    answering.start()
    armed.wait_until_begun()
    answering.join()
    assert armed.state == vpt.State.ACTIVE


def test_who_is_stopped_is_said_to_be_and_can_be_recorded_later(
    armed: Control, process: subprocess.Popen[bytes]
) -> None:
    process.send_signal(signal.SIGSTOP)
    while not armed.stopped():
        time.sleep(0.01)
    with pytest.raises(FailedPrecondition, match="does not answer") as refused:
        armed.wait_until_begun()
    assert refused.value.reason == "TARGET_STOPPED" and "kill -CONT" in refused.value.help
    assert armed.state == vpt.State.IDLE
