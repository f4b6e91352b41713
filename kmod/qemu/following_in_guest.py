"""In the guest: children that a target forks while it is recorded are in the report; and a controller that is killed
while it records ends its recording, says so when it is back, and records again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import psutil
from mesh_in_guest import BIN, NICE, PATIENT, SETTINGS, asked, bring_up, say
from permille.controller.domain.kmod_device import KmodDevice

# The longest that the controller records.
MOST_S = 60
TRACE = ("trace", "--backend", "kmod", "--json")


def module() -> tuple[int, int]:
    """Sessions, and bytes that they have."""
    device = KmodDevice()
    info = device.info()
    device.close()
    return info.sessions, info.memory_used_bytes


def follow_children(pid: int) -> None:
    """On a busy machine nothing may happen in a second."""
    period_s = 1
    while True:
        (session,) = json.loads(asked(*TRACE, "--pid", str(pid), "--for", f"{period_s}s"))["sessions"]
        report = json.loads(asked("report", session, "--json"))
        children = {row["pid"] for row in report["segments"]} - {pid}
        work = sum(row["self_instructions"] for row in report["functions"] if row["name"] == "child_work")
        say(f"{period_s} s: {len(children)} children of the target were recorded, {work} instructions of their work")
        if children and work:
            return
        if period_s == MOST_S:
            raise SystemExit("no child of the target was recorded and decoded")
        period_s = min(2 * period_s, MOST_S)


def lose_controller(pid: int) -> None:
    (controller,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if any("permille-controller" in word for word in process.info["cmdline"] or ())
    )
    trace = subprocess.Popen(
        [BIN / "permille", *TRACE, "--pid", str(pid), "--for", f"{MOST_S}s", *SETTINGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while module()[0] == 0 and trace.poll() is None:
        time.sleep(0.05)
    controller.kill()
    # Reaped by its supervisor once all that it had is given back.
    psutil.wait_procs([controller])
    left = module()
    said = trace.communicate()[0]
    say(f"controller killed: {left[0]} sessions and {left[1]} bytes are left in the module; trace: {trace.returncode}")
    say(said)
    if left != (0, 0) or trace.returncode == 0 or "CONTROLLER_LOST" not in said:
        raise SystemExit("a lost controller is not told, or has left something")
    asked(*TRACE, "--pid", str(pid), "--for", "300ms")


def main() -> None:
    os.environ.update(PATIENT)
    target = subprocess.Popen([*NICE, os.environ["PROGRAM"]], stdin=subprocess.DEVNULL)
    mesh = bring_up()
    follow_children(target.pid)
    lose_controller(target.pid)
    target.kill()
    mesh.send_signal(signal.SIGTERM)
    mesh.wait()


if __name__ == "__main__":
    main()
