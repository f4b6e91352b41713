"""What the recorder's own log says of a recording, held against what the decoder makes of its packets."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from permille.controller.domain import vpt_layout as vpt
from permille.controller.domain.vpt_control import Control
from permille.controller.domain.vpt_recording import stream_header
from permille.controller.main import default_vpt_dir

PERIOD_MS = 100
BUFFER_BYTES = 64 << 20
STREAMS = 8
PATIENCE_S = 120
PTCORE = Path(__file__).parents[2] / "services/decoder/ptcore"
BUSY = (vpt.State.ARMED, vpt.State.ACTIVE)
FLAGS = vpt.Flags.BRANCH | vpt.Flags.LONG_TNT | vpt.Flags.TSC | vpt.Flags.MTC | vpt.Flags.CYC | vpt.Flags.TRUTH
RESULT = re.compile(r"equal (\d+) gaps (\d+) errors (\d+) missing (\d+)")


@dataclass(frozen=True)
class Agreement:
    """Instructions: decoded as they ran; of the log not decoded, which may be those behind the last packet."""

    equal: int
    missing: int


def compared(pid: int) -> Agreement:
    """Records a process that nobody else records, with the log of every block that it runs.

    Raises `RuntimeError` for an instruction that is decoded as another one than ran, and for one that is not decoded.
    """
    tool = truth_tool()
    control = Control(Path(os.environ.get("PERMILLE_CONTROLLER_VPT_DIR", default_vpt_dir())) / str(pid))
    page = control.page
    page.session, page.period_ns, page.flags = b"truth", PERIOD_MS * 1_000_000, FLAGS
    page.psb_freq, page.mtc_freq, page.bandwidth_bytes_per_ms, page.stop_request = 2, 3, 0, 0
    for index in range(STREAMS):
        page.planned[index] = vpt.Planned(0, 0, BUFFER_BYTES)
    page.planned_count = STREAMS
    page.state = vpt.State.ARMED
    try:
        deadline = time.monotonic() + PATIENCE_S
        while control.state in BUSY and time.monotonic() < deadline:
            time.sleep(0.01)
        if control.state != vpt.State.FINISHED:
            raise RuntimeError(f"the recording with a log ended in state {control.state}: {bytes(page.error).decode()}")
        taken = [n for n in range(page.streams) if stream_header(control.folder / f"stream-{n}.pt").tid]
        found = [_stream(tool, control.folder, stream) for stream in taken]
    finally:
        page.state = vpt.State.IDLE
    return Agreement(sum(one.equal for one in found), sum(one.missing for one in found))


def truth_tool() -> Path:
    """The decoder's own comparison with such a log, built when it is not there."""
    command = ["cargo", "build", "-q", "--release", "-p", "pt-flow", "--example", "truth"]
    subprocess.run(command, cwd=PTCORE, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", PTCORE / "target")) / "release/examples/truth"


def _stream(tool: Path, folder: Path, stream: int) -> Agreement:
    done = subprocess.run([tool, folder, str(stream)], check=False, capture_output=True, text=True)
    numbers = RESULT.search(done.stdout)
    if done.returncode != 0 or numbers is None:
        raise RuntimeError(f"stream {stream} does not decode as it ran: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    equal, _, _, missing = map(int, numbers.groups())
    return Agreement(equal, missing)
