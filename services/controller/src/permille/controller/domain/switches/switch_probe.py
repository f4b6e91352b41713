"""The privileged side of the switch recorder: a program for the system's own interpreter, to which BCC belongs.

Commands are JSON lines on stdin, one answer line on stdout for each:
`{"begin": ID, "pids": [...], "path": FILE}` -> `{"begun": ID}`; records are appended to FILE while it runs;
`{"end": ID}` -> `{"ended": ID, "count": N, "dropped": N, "unseen": N}`. The first line out is `{"ready": true}` or
`{"unavailable": WHY, "fix": COMMAND}`. It ends with its parent or when stdin closes. Records are 24 bytes as in the
archive, with CLOCK_MONOTONIC nanoseconds in place of the TSC. While no session runs, nothing is attached to the kernel.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

RECORD_BYTES = 24
# A ring buffer record carries its length and two flags in front (include/uapi/linux/bpf.h, BPF_RINGBUF_*).
HEADER_BYTES = 8
BUSY = 1 << 31
DISCARD = 1 << 30
SLOT = struct.Struct(f"<II{RECORD_BYTES}s")
POSITION = struct.Struct("<Q")
RING_PAGES = 1024
# 131,072 records fit into the ring: at this interval 2.6 million switches per second.
DRAIN_MS = 50
TRACEPOINTS = ("sched:sched_switch", "task:task_newtask")
TRACEFS = Path("/sys/kernel/tracing")
PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x4000 | 0x40000

libc = ctypes.CDLL(None, use_errno=True)


class UnavailableError(Exception):
    """Why the kernel cannot be asked, and the command that changes it."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix


def main() -> int:
    parent = os.getppid()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        require_root()
        mount_tracefs()
        probe = Probe()
    except UnavailableError as error:
        say({"unavailable": error.why, "fix": error.fix})
        return 1
    say({"ready": True})
    serve(probe)
    return 0


def say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def require_root() -> None:
    if os.geteuid() != 0:
        raise UnavailableError("only root may load BPF programs", "sudo permille up")


def mount_tracefs() -> None:
    """Makes tracefs visible, in a mount namespace of this process's own: nothing changes for the machine."""
    if (TRACEFS / "events").is_dir():
        return
    if (
        libc.unshare(CLONE_NEWNS) != 0
        or libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None) != 0
        or libc.mount(b"none", os.fsencode(TRACEFS), b"tracefs", 0, None) != 0
    ):
        why = os.strerror(ctypes.get_errno())
        raise UnavailableError(
            f"tracefs cannot be mounted at {TRACEFS}: {why}", f"sudo mount -t tracefs none {TRACEFS}"
        )


class Ring:
    """The kernel's ring buffer, read in bulk from its memory instead of one callback per record."""

    def __init__(self, descriptor: int) -> None:
        self.size = RING_PAGES * mmap.PAGESIZE
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        self.consumer = mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_SHARED, writable)
        # The data pages are mapped twice in a row, so that a record never wraps.
        length = mmap.PAGESIZE + 2 * self.size
        self.producer = mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE)

    def drain(self) -> list[bytes]:
        (begin,) = POSITION.unpack_from(self.consumer, 0)
        (end,) = POSITION.unpack_from(self.producer, 0)
        if begin == end:
            return []
        data = mmap.PAGESIZE + begin % self.size
        slots = list(SLOT.iter_unpack(self.producer[data : data + end - begin]))
        busy = next((index for index, slot in enumerate(slots) if slot[0] & BUSY), len(slots))
        POSITION.pack_into(self.consumer, 0, begin + busy * SLOT.size)
        return [record for length, _, record in slots[:busy] if not length & DISCARD]


class Session:
    def __init__(self, pids: list[int], path: str) -> None:
        self.pids = pids
        self.file: BinaryIO = open(path, "ab")  # noqa: SIM115, PTH123
        self.count = 0


class Probe:
    """The BPF program and the sessions that it records for."""

    def __init__(self) -> None:
        try:
            from bcc import BPF  # noqa: PLC0415 - its absence is an answer, not a crash
        except ImportError as error:
            raise UnavailableError(f"BCC is not installed: {error}", "sudo apt-get install python3-bpfcc") from None
        source = Path(__file__).with_suffix(".c").read_text().replace("RING_PAGES", str(RING_PAGES))
        try:
            self.bpf: Any = BPF(text=source)
        except Exception as error:
            raise UnavailableError(*why_not(error)) from None
        for tracepoint in TRACEPOINTS:
            self.bpf.detach_tracepoint(tp=tracepoint)
        self.ring = Ring(self.bpf["records"].map_fd)
        self.sessions: dict[str, Session] = {}
        self.by_pid: dict[int, Session] = {}

    def begin(self, name: str, pids: list[int], path: str) -> None:
        session = Session(pids, path)
        if not self.sessions:
            self.bpf["running"].clear()
            for tracepoint in TRACEPOINTS:
                self.bpf.attach_tracepoint(tp=tracepoint, fn_name="tracepoint__" + tracepoint.replace(":", "__"))
        self.sessions[name] = session
        for pid in pids:
            self.by_pid[pid] = session
            targets, key = self.bpf["targets"], ctypes.c_uint32(pid)
            # Threads born from now on are known to the kernel's side, those there are listed, and only then it records.
            targets[key] = targets.Leaf(0, 0, 0)
            for tid in threads_of(pid):
                self.bpf["threads"][ctypes.c_uint32(tid)] = ctypes.c_uint32(pid)
            targets[key] = targets.Leaf(0, 0, 1)

    def end(self, name: str) -> dict[str, object]:
        session = self.sessions.pop(name)
        losses = [self.forget(pid) for pid in session.pids]
        if not self.sessions:
            for tracepoint in TRACEPOINTS:
                self.bpf.detach_tracepoint(tp=tracepoint)
        self.drain()
        for pid in session.pids:
            del self.by_pid[pid]
        session.file.close()
        dropped, unseen = (sum(loss) for loss in zip(*losses, strict=True))
        return {"ended": name, "count": session.count, "dropped": dropped, "unseen": unseen}

    def forget(self, pid: int) -> tuple[int, int]:
        key = ctypes.c_uint32(pid)
        target = self.bpf["targets"][key]
        del self.bpf["targets"][key]
        threads = self.bpf["threads"]
        for tid in [tid for tid, owner in threads.items() if owner.value == pid]:
            del threads[tid]
        return int(target.dropped), int(target.unseen)

    def drain(self) -> None:
        for record in self.ring.drain():
            session = self.by_pid.get(int.from_bytes(record[12:16], "little"))
            if session is not None:
                session.file.write(record)
                session.count += 1
        for session in self.sessions.values():
            session.file.flush()


def threads_of(pid: int) -> list[int]:
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def why_not(error: Exception) -> tuple[str, str]:
    """What BCC's failure means: it says most of it on stderr only."""
    if os.geteuid() != 0:
        return (
            "recording switches needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN)",
            "start the controller as root",
        )
    if "compile" in str(error):
        release = os.uname().release
        return (
            f"the BPF program cannot be compiled: kernel headers are missing or unusable ({error})",
            f"sudo apt-get install linux-headers-{release} || sudo apt-get install linux-headers-cloud-amd64",
        )
    return f"the kernel refuses the BPF program: {error}", "check `sysctl kernel.bpf` and the kernel's lockdown mode"


def serve(probe: Probe) -> None:
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], DRAIN_MS / 1000 if probe.sessions else None)
        probe.drain()
        if not readable:
            continue
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        try:
            if "begin" in command:
                probe.begin(command["begin"], command["pids"], command["path"])
                say({"begun": command["begin"]})
            else:
                say(probe.end(command["end"]))
        except Exception as error:
            say({"failed": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    sys.exit(main())
