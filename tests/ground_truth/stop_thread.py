"""`stop_thread.py TID`: stops one thread of another process, wherever it is, until standard input ends (ptrace(2))."""

import ctypes
import os
import sys

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def request(what: int, tid: int) -> None:
    if libc.ptrace(what, tid, None, None):
        raise OSError(ctypes.get_errno(), f"ptrace {what:#x} of {tid}")


if __name__ == "__main__":
    thread = int(sys.argv[1])
    request(SEIZE, thread)
    request(INTERRUPT, thread)
    os.waitpid(thread, WALL)
    print("stopped", flush=True)
    sys.stdin.read()
    request(DETACH, thread)
