"""In the guest: all of permille's services are brought up, with no more rights than are documented, and asked to record
another user's program that was there before, with the kernel module. Each line said is one of the test's; what was
recorded is left in /recorded for the host.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
STATE = Path("/state")
RECORDED = Path("/recorded")
SOCKET = "/tmp/redis"  # noqa: S108 - nobody else is in the guest
# How a busy machine's emulator may be slow is nobody's mistake.
READY_S = "900"
# The program gets what the services leave: they must not look dead to each other.
NICE = ["/usr/bin/nice", "-n", "19"]
NOBODY = ["/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
# What docs/operations.md gives to a controller that records with the module, and their numbers (linux/capability.h).
CAPABILITIES = {"dac_read_search": 2, "sys_ptrace": 19, "perfmon": 38, "bpf": 39}
LEAST = [
    *("/usr/bin/setpriv", "--bounding-set", ",".join(["-all", *(f"+{name}" for name in CAPABILITIES)])),
    *("--inh-caps", "-all", "--no-new-privs"),
]
CONFIG = Path("/permille.toml")
PATIENT = {
    "PERMILLE_CONFIG": str(CONFIG),
    "PERMILLE_LEASE_TTL_S": "120",
    "PERMILLE_CONTROLLER_SWITCHES": "false",
}
SERVER = [
    *NICE,
    *NOBODY,
    *("/usr/bin/redis-server", "--port", "0", "--unixsocket", SOCKET, "--save", ""),
    *("--io-threads", "3", "--io-threads-do-reads", "yes"),
]
SETTINGS = ["--state-dir", str(STATE)]
# kmod/qemu/unit/mark.h
NEXT_RECORDING, RECORDING_COMES = 0x6D720001, 0x6D720004
PTRACE_GETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 12, 17, 0x4206, 0x4207
# struct user_regs_struct: fs_base and gs_base, which programs of 32 bits use, are the 22nd and 23rd of 27 registers.
REGISTERS, FS_BASE, GS_BASE = 27, 21, 22
WALL = 0x40000000


def say(text: str) -> None:
    for line in text.splitlines():
        print(f"# {line}", flush=True)


def say_logs() -> None:
    for log in sorted((STATE / "logs").glob("*.log")):
        say(f"{log.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]))


def bring_up() -> subprocess.Popen[str]:
    """Returns when every service is found and healthy."""
    CONFIG.write_text("etcd_timeout_s = 60\n")
    mesh = subprocess.Popen(
        [*LEAST, BIN / "permille", "up", "--ready-timeout", READY_S, *SETTINGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in mesh.stdout or ():
        say(line.rstrip())
        if line.startswith("ready"):
            check_capabilities()
            return mesh
    say_logs()
    raise SystemExit("the mesh does not come up")


def controller() -> psutil.Process:
    (found,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if any("permille-controller" in word for word in process.info["cmdline"] or ())
    )
    return found


def check_capabilities() -> None:
    """The controller has those that are documented, and none besides."""
    wanted = sum(1 << number for number in CAPABILITIES.values())
    (has,) = re.findall(r"^CapEff:\s*(\w+)$", Path(f"/proc/{controller().pid}/status").read_text(), re.MULTILINE)
    say(f"the controller has the capabilities {has}")
    if int(has, 16) != wanted:
        raise SystemExit(f"they should be {wanted:016x}")


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
    return registers[FS_BASE] or registers[GS_BASE]


def write_pointers(pid: int) -> None:
    """For the comparison with the trace unit's log; while the program lives."""
    pointers = {tid: thread_pointer(tid) for tid in threads_of(pid)}
    (RECORDED / "pointers.txt").write_text("".join(f"{tid} {at:x}\n" for tid, at in pointers.items()))


def threads_of(pid: int) -> list[int]:
    return sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())


def mark(number: int) -> None:
    """Executes the instruction that tells the trace unit's plugin, and a return."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as code:
        code.write(bytes.fromhex("0f1f80") + number.to_bytes(4, "little") + bytes.fromhex("c3"))
        at = ctypes.c_char.from_buffer(code)
        ctypes.CFUNCTYPE(None)(ctypes.addressof(at))()
        del at


def start_redis() -> subprocess.Popen[bytes]:
    server = subprocess.Popen(SERVER, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not Path(SOCKET).exists():
        time.sleep(0.1)
    return server
