"""Decodes segments in worker processes; one that kills its worker costs itself only."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from permille.mesh.errors import Unavailable

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_PR_SET_PDEATHSIG = 1


class WorkerDied(Exception):  # noqa: N818 - it tells what happened
    """The worker process ended while it worked on this task alone."""


class SegmentPool(Generic[_Task, _Result]):
    """`work` runs in `workers` processes that are started when the first task comes. Close it at the end."""

    def __init__(self, work: Callable[[_Task], _Result], workers: int) -> None:
        self._work = work
        self.workers = workers
        self._shared: ProcessPoolExecutor | None = None
        # Of the tasks that were there when a worker died one is to blame: they are repeated one by one.
        self._alone = asyncio.Lock()
        self._executors: set[ProcessPoolExecutor] = set()
        self._closed = False

    async def run(self, task: _Task) -> _Result:
        """Raises what `work` raises, `WorkerDied` when it ends the process, `Unavailable` when the pool is closed."""
        if self._shared is None:
            self._shared = self._started(self.workers)
        shared = self._shared
        try:
            return await asyncio.get_running_loop().run_in_executor(shared, self._work, task)
        except BrokenProcessPool:
            if self._shared is shared:
                self._shared = None
            self._executors.discard(shared)
        async with self._alone:
            return await self._run_alone(task)

    def close(self) -> None:
        """Ends the workers, also one in the middle of its task."""
        self._closed = True
        for executor in self._executors:
            processes = list((executor._processes or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
        self._executors.clear()

    async def _run_alone(self, task: _Task) -> _Result:
        executor = self._started(1)
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, self._work, task)
        except BrokenProcessPool:
            self._require_open()
            raise WorkerDied from None
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            self._executors.discard(executor)

    def _started(self, workers: int) -> ProcessPoolExecutor:
        self._require_open()
        # Not forked: gRPC's threads do not survive that.
        spawn = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(workers, spawn, initializer=_begin, initargs=(os.getpid(),))
        self._executors.add(executor)
        return executor

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("the decoder ends", reason="SHUTTING_DOWN", help="ask another replica", retry_after_s=1)


def _begin(service: int) -> None:
    # A worker dies with the service, also with one that died while the worker started, and leaves Ctrl-C to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != service:
        os._exit(0)
