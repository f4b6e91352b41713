"""One task in one process of its own: for places where a process pool cannot be, such as a Dask worker (a daemon)."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from permille.decoder.domain.workers import WorkerDied, no_worker

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_PR_SET_PDEATHSIG = 1
# What a process says when it has its task: from then on its end is the task's fault.
_BEGUN = b"+"


def run_in_lone_process(work: Callable[[_Task], _Result], task: _Task) -> _Result:
    """What `work` returns. Raises what it raises (`RuntimeError` for what cannot be pickled), `WorkerDied` when it ends
    the process, `Unavailable` without one.
    """
    command = [sys.executable, "-m", __name__, str(os.getpid())]
    # Both ends are this very program: nobody else's pickles are read.
    try:
        done = subprocess.run(command, input=pickle.dumps((work, task)), stdout=subprocess.PIPE, check=False)
    except OSError as why:
        raise no_worker(str(why)) from why
    if not done.stdout.startswith(_BEGUN):
        raise no_worker(f"it ended at its start ({done.returncode})")
    if done.returncode:
        raise WorkerDied
    result, error = pickle.loads(done.stdout[len(_BEGUN) :])  # noqa: S301
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _main() -> None:
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Whoever asks all processes of a machine to end means the parent, and this one ends with it.
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.SIG_IGN)
    if os.getppid() != parent:
        os._exit(1)
    # Without memory the kernel is to end this process, and not the parent in its place.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # Whatever the work prints must not get among the result.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    work, task = pickle.load(sys.stdin.buffer)  # noqa: S301
    answer.write(_BEGUN)
    answer.flush()
    try:
        told = pickle.dumps((work(task), None))
    except Exception as error:
        told = _told(error)
    answer.write(told)
    answer.close()


def _told(error: Exception) -> bytes:
    try:
        told = pickle.dumps((None, error))
        # What was made of other arguments than it shows is found out only so.
        pickle.loads(told)  # noqa: S301
    except Exception:
        return pickle.dumps((None, RuntimeError(repr(error))))
    return told


if __name__ == "__main__":
    _main()
