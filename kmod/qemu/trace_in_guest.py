"""In the guest: one mesh records redis-server, for the host to compare, and then a program that forks all the time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from typing import Any

from following_in_guest import follow_children, follow_joiners, lose_controller, mount_cgroups
from forked_permille import asked
from mesh_in_guest import (
    NEXT_RECORDING,
    NICE,
    PATIENT,
    RECORDED,
    RECORDING_COMES,
    SOCKET,
    STATE,
    bring_up,
    mark,
    say,
    start_redis,
    write_pointers,
)

PERIOD = os.environ.get("PERIOD", "300ms")
CLIENTS = [
    *NICE,
    "/usr/bin/redis-benchmark",
    "-s",
    SOCKET,
    "-q",
    "-l",
    "-c",
    "24",
    "-P",
    "4",
    "-t",
    "set,get,lpush,zadd",
]


def say_report(report: dict[str, Any]) -> None:
    told = report["session"]
    say(f"decoded: back end {told['backend']}, {told['instructions']} instructions, {told['lost_bytes']} bytes lost")
    functions = sorted(report["functions"], key=lambda function: -function["self_instructions"])
    for function in functions[:8]:
        say(f"{function['self_instructions']:>10} {function['calls']:>7} {function['name']}")


def record_redis(server: subprocess.Popen[bytes]) -> None:
    """Its session is left for the host as it was stored."""
    clients = subprocess.Popen(CLIENTS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    mark(RECORDING_COMES)
    traced = json.loads(asked("trace", "--backend", "kmod", "--name", "redis-server", "--for", PERIOD, "--json"))
    clients.kill()
    say(json.dumps(traced))
    (session,) = traced["sessions"]
    write_pointers(server.pid)
    mark(NEXT_RECORDING)
    say_report(json.loads(asked("report", session, "--json")))
    server.kill()
    shutil.copytree(STATE / "store", RECORDED / "store")


def main() -> None:
    RECORDED.mkdir()
    os.environ.update(PATIENT)
    mount_cgroups()
    server = start_redis()
    mesh = bring_up()
    record_redis(server)
    target = subprocess.Popen([*NICE, os.environ["PROGRAM"]], stdin=subprocess.DEVNULL)
    follow_children(target.pid)
    follow_joiners()
    lose_controller(target.pid)
    target.kill()
    mesh.send_signal(signal.SIGTERM)
    mesh.wait()


if __name__ == "__main__":
    main()
