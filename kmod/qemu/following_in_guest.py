"""In the guest: children that a target forks while it is recorded are in the report, each with what it ran, also where
it shares the target's memory (vfork); and so is a program that is put into the cgroup that is recorded; and a
controller that is killed while it records ends its recording, says so when it is back, and records again.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import time
from pathlib import Path

import psutil
from forked_permille import Permille, asked
from mesh_in_guest import NICE, controller, say
from permille.controller.domain.kmod_device import KmodDevice

# The longest that the controller records.
MOST_S = 60
CGROUP = Path("/sys/fs/cgroup/joined")
TRACE = ("trace", "--backend", "kmod", "--json")


def module() -> tuple[int, int]:
    """Sessions, and bytes that they have."""
    device = KmodDevice()
    info = device.info()
    device.close()
    return info.sessions, info.memory_used_bytes


def who_ran(function: str, session_id: str) -> set[int]:
    """The processes that the tables say it of."""
    asks = f"SELECT DISTINCT pid FROM calls WHERE session_id = '{session_id}' AND name = '{function}'"  # noqa: S608
    return {row["pid"] for row in json.loads(asked("query", asks, "--json"))["rows"]}


def follow_children(pid: int) -> None:
    """On a busy machine nothing may happen in a second."""
    period_s = 1
    while True:
        (session,) = json.loads(asked(*TRACE, "--pid", str(pid), "--for", f"{period_s}s"))["sessions"]
        report = json.loads(asked("report", session, "--json"))
        children = {row["pid"] for row in report["segments"]} - {pid}
        work = sum(row["self_instructions"] for row in report["functions"] if row["name"] == "child_work")
        sharing = who_ran("shared_work", report["session"]["session_id"])
        say(f"{period_s} s: {len(children)} children of the target were recorded, {work} instructions of their work")
        say(f"{len(sharing)} of them shared its memory")
        if not sharing <= children:
            raise SystemExit("what a child ran in the target's memory is said to be the target's")
        if children and work and sharing:
            return
        if period_s == MOST_S:
            raise SystemExit("no child of each kind was recorded and decoded")
        period_s = min(2 * period_s, MOST_S)


def mount_cgroups() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"cgroup", str(CGROUP.parent).encode(), b"cgroup2", 0, None):
        raise OSError(ctypes.get_errno(), "no cgroups")
    CGROUP.mkdir()


def put_into_cgroup(pid: int) -> None:
    (CGROUP / "cgroup.procs").write_text(str(pid))


def follow_joiners() -> None:
    """A program that runs elsewhere is put into a cgroup in which another rests, when the module has the session."""
    resting = subprocess.Popen(["/bin/sh", "-c", "read nothing"], stdin=subprocess.PIPE)
    put_into_cgroup(resting.pid)
    period_s = 2
    while True:
        joiner = subprocess.Popen([*NICE, os.environ["PROGRAM"]], stdin=subprocess.DEVNULL)
        trace = Permille(*TRACE, "--cgroup", f"/{CGROUP.name}", "--for", f"{period_s}s")
        while module()[0] == 0 and trace.poll() is None:
            time.sleep(0.05)
        put_into_cgroup(joiner.pid)
        trace.wait()
        (session,) = json.loads(trace.told())["sessions"]
        joiner.kill()
        joiner.wait()
        recorded = {row["pid"] for row in json.loads(asked("report", session, "--json"))["segments"]}
        say(f"{period_s} s: {len(recorded)} processes, among them the one that joined: {joiner.pid in recorded}")
        if joiner.pid in recorded:
            resting.kill()
            return
        if period_s == MOST_S:
            raise SystemExit("what joined the cgroup was not recorded")
        period_s = min(2 * period_s, MOST_S)


def lose_controller(pid: int) -> None:
    recorder = controller()
    trace = Permille(*TRACE, "--pid", str(pid), "--for", f"{MOST_S}s")
    while module()[0] == 0 and trace.poll() is None:
        time.sleep(0.05)
    recorder.kill()
    # Reaped by its supervisor once all that it had is given back.
    psutil.wait_procs([recorder])
    left = module()
    code = trace.wait()
    said = trace.told() + trace.complained()
    say(f"controller killed: {left[0]} sessions and {left[1]} bytes are left in the module; trace: {code}")
    say(said)
    if left != (0, 0) or code == 0 or "CONTROLLER_LOST" not in said:
        raise SystemExit("a lost controller is not told, or has left something")
    asked(*TRACE, "--pid", str(pid), "--for", "300ms")
