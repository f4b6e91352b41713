"""In the guest: all of permille's services are brought up and asked to record a program that was there before, with the
kernel module. Each line said is one of the test's; what was recorded is left in /recorded for the host.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
STATE = Path("/state")
RECORDED = Path("/recorded")
SOCKET = "/redis"
PERIOD = os.environ.get("PERIOD", "300ms")
# How a busy machine's emulator may be slow is nobody's mistake.
READY_S = "900"
# The program gets what the services leave: they must not look dead to each other.
NICE = ["/usr/bin/nice", "-n", "19"]
PATIENT = {"PERMILLE_LEASE_TTL_S": "120", "PERMILLE_CONTROLLER_SWITCHES": "false"}
SERVER = [
    *NICE,
    *("/usr/bin/redis-server", "--port", "0", "--unixsocket", SOCKET, "--save", ""),
    *("--io-threads", "3", "--io-threads-do-reads", "yes"),
]
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
SETTINGS = ["--state-dir", str(STATE)]
PTRACE_GETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 12, 17, 0x4206, 0x4207
# struct user_regs_struct: fs_base is the 22nd of 27 registers.
REGISTERS, FS_BASE = 27, 21
WALL = 0x40000000


def say(text: str) -> None:
    for line in text.splitlines():
        print(f"# {line}", flush=True)


def permille(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / "permille", *arguments, *SETTINGS], capture_output=True, text=True, check=False)


def asked(*arguments: str) -> str:
    """What a command says that has to succeed."""
    begun = time.monotonic()
    done = permille(*arguments)
    say(f"permille {' '.join(arguments)}: exit code {done.returncode}, {time.monotonic() - begun:.0f} s")
    if done.returncode != 0:
        say(done.stdout + done.stderr)
        say_logs()
        raise SystemExit(1)
    return done.stdout


def say_logs() -> None:
    for log in sorted((STATE / "logs").glob("*.log")):
        say(f"{log.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))


def bring_up() -> subprocess.Popen[str]:
    """Returns when every service is found and healthy."""
    mesh = subprocess.Popen(
        [BIN / "permille", "up", "--ready-timeout", READY_S, *SETTINGS], stdout=subprocess.PIPE, text=True
    )
    for line in mesh.stdout or ():
        say(line.rstrip())
        if "ready" in line:
            return mesh
    say_logs()
    raise SystemExit("the mesh does not come up")


def thread_pointer(tid: int) -> int:
    """By which the trace unit's log knows a thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    registers = (ctypes.c_uint64 * REGISTERS)()
    none = ctypes.c_void_p(None)
    if libc.ptrace(PTRACE_SEIZE, tid, none, none) or libc.ptrace(PTRACE_INTERRUPT, tid, none, none):
        raise OSError(ctypes.get_errno(), f"thread {tid}")
    os.waitpid(tid, WALL)
    libc.ptrace(PTRACE_GETREGS, tid, none, ctypes.byref(registers))
    libc.ptrace(PTRACE_DETACH, tid, none, none)
    return registers[FS_BASE]


def write_pointers(pid: int) -> None:
    """For the comparison with the trace unit's log; while the program lives."""
    pointers = {tid: thread_pointer(tid) for tid in threads_of(pid)}
    (RECORDED / "pointers.txt").write_text("".join(f"{tid} {at:x}\n" for tid, at in pointers.items()))


def threads_of(pid: int) -> list[int]:
    return sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())


def say_report(report: dict[str, Any]) -> None:
    told = report["session"]
    say(f"decoded: back end {told['backend']}, {told['instructions']} instructions, {told['lost_bytes']} bytes lost")
    functions = sorted(report["functions"], key=lambda function: -function["self_instructions"])
    for function in functions[:8]:
        say(f"{function['self_instructions']:>10} {function['calls']:>7} {function['name']}")


def main() -> None:
    RECORDED.mkdir()
    server = subprocess.Popen(SERVER, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not Path(SOCKET).exists():
        time.sleep(0.1)
    os.environ.update(PATIENT)
    mesh = bring_up()
    clients = subprocess.Popen(CLIENTS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    traced = json.loads(asked("trace", "--backend", "kmod", "--name", "redis-server", "--for", PERIOD, "--json"))
    clients.kill()
    say(json.dumps(traced))
    (session,) = traced["sessions"]
    write_pointers(server.pid)
    say_report(json.loads(asked("report", session, "--json")))
    server.kill()
    mesh.send_signal(signal.SIGTERM)
    mesh.wait()
    shutil.copytree(STATE, RECORDED / "state")


if __name__ == "__main__":
    main()
