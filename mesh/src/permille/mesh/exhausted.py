"""What a process can have no more of on its machine."""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from permille.mesh.errors import ResourceExhausted


class _Lack(NamedTuple):
    what: str
    way_out: str


_THREADS = _Lack("threads", "raise the limit of processes (pids.max of its cgroup, `ulimit -u`)")
_FILES = _Lack("open files", "raise the limit of files (`ulimit -n`)")
_MEMORY = _Lack("memory", "raise its memory limit (memory.max of its cgroup), or free some on the machine")
_BY_NUMBER = {errno.EMFILE: _FILES, errno.ENFILE: _FILES, errno.ENOMEM: _MEMORY}
# Libraries wait for descriptors themselves: a thread is what they cannot have.
_BY_TEXT = {**_BY_NUMBER, errno.EAGAIN: _THREADS}
# How libraries tell the error of a system call that they do not hand on: Rust's, and those of C.
_IN_TEXT = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)


def exhausted(who: str, error: BaseException) -> ResourceExhausted | None:
    """What `who` can have no more of, when that is the error."""
    lack = _lack(error)
    if lack is None:
        return None
    return ResourceExhausted(
        f"{who} can have no more {lack.what} on its machine",
        reason="MACHINE_EXHAUSTED",
        help=f"{lack.way_out}; then try again",
        metadata={"service": who, "lacks": lack.what},
        retry_after_s=1.0,
    )


def _lack(error: BaseException) -> _Lack | None:
    match error:
        case MemoryError():
            return _MEMORY
        # threading.Thread.start has no error of its own for it.
        case RuntimeError() if str(error) == "can't start new thread":
            return _THREADS
        case OSError(errno=int(number)):
            return _BY_NUMBER.get(number)
    told = _IN_TEXT.search(str(error))
    return _BY_TEXT.get(int(told[1] or told[2])) if told else None
