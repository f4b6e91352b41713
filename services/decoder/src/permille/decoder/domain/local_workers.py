"""Worker processes of this machine, started when they are needed."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread
from typing import Any, TypeVar, cast

from permille.decoder.domain.workers import WorkerDied, no_worker
from permille.mesh.errors import Unavailable
from permille.mesh.memory import keep_little

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_PR_SET_PDEATHSIG = 1
# mallopt(3). Pieces of memory that are larger are given back at once; of the others so many bytes are kept.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE, _KEPT = 32 << 20, 128 << 20
# So often a pool that starts is asked whether it still can.
_LOOK_S = 1.0


class LocalWorkers:
    """`Workers` as a process pool. Close it at the end."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._shared: ProcessPoolExecutor | None = None
        self._executors: set[ProcessPoolExecutor] = set()
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def slots(self) -> int:
        """One more than there are processes, so that a process that ends a task finds the next."""
        return self._processes + 1

    async def submit(self, work: Callable[[_Task], _Result], task: _Task, priority: int) -> Future[_Result]:
        """See `Workers`; the order is that of the calls."""
        async with self._starting:
            if self._shared is not None:
                try:
                    return self._shared.submit(work, task)
                except BrokenProcessPool:
                    self._executors.discard(self._shared)
                    self._shared = None
            self._shared = await self._started(self._processes, work)
            return self._submitted(self._shared, work, task)

    async def submit_alone(self, work: Callable[[_Task], _Result], task: _Task, priority: int) -> Future[_Result]:
        """See `Workers`."""
        executor = await self._started(1, work)
        result: Future[_Result] = Future()
        begun = self._submitted(executor, work, task)
        begun.add_done_callback(lambda done: self._tell(executor, done, result))
        return result

    async def require(self) -> None:
        """See `Workers`: the futures of a pool that ended say so."""

    def lost(self, error: BaseException) -> bool:
        """See `Workers`. Of the tasks that were there when a process died one is to blame."""
        return isinstance(error, BrokenProcessPool)

    def close(self) -> None:
        """Kills the processes, also one in the middle of its task."""
        self._closed = True
        for executor in list(self._executors):
            self._end(executor)

    def _submitted(
        self, executor: ProcessPoolExecutor, work: Callable[[_Task], _Result], task: _Task
    ) -> Future[_Result]:
        """The first task of a pool that has just started."""
        try:
            return executor.submit(work, task)
        except BrokenProcessPool as error:
            self._end(executor)
            raise no_worker("its process ended before it had a task") from error

    def _tell(self, executor: ProcessPoolExecutor, done: Future[Any], result: Future[Any]) -> None:
        executor.shutdown(wait=False)
        self._executors.discard(executor)
        if done.cancelled() or result.cancelled():
            result.cancel()
            return
        error = done.exception()
        if error is None:
            result.set_result(done.result())
        elif not isinstance(error, BrokenProcessPool):
            result.set_exception(error)
        else:
            result.set_exception(_ends() if self._closed else WorkerDied())

    async def _started(self, processes: int, work: Callable[[_Task], _Result]) -> ProcessPoolExecutor:
        """Raises `Unavailable` where its first process does not come as far as to know `work`."""
        if self._closed:
            raise _ends()
        # Not forked: gRPC's threads do not survive. The kernel ends the processes with the thread that starts them.
        spawn = multiprocessing.get_context("spawn")
        executor: ProcessPoolExecutor | None = None
        try:
            executor = _Executor(processes, spawn, initializer=_begin, initargs=(os.getpid(),))
            self._executors.add(executor)
            await _begun(executor, work)
        except BaseException as error:
            if executor is not None:
                self._end(executor)
            if self._closed:
                raise _ends() from error
            if isinstance(error, OSError | RuntimeError | MemoryError):
                raise no_worker(str(error)) from error
            raise
        return executor

    def _end(self, executor: ProcessPoolExecutor) -> None:
        self._executors.discard(executor)
        processes = list((executor._processes or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


class _Executor(ProcessPoolExecutor):
    """Does with the processes that there are while no further one can be started."""

    def _adjust_process_count(self) -> None:
        try:
            super()._adjust_process_count()
        except OSError:
            if not self._processes:
                raise


async def _begun(executor: ProcessPoolExecutor, work: Callable[[_Task], _Result]) -> None:
    first = asyncio.wrap_future(executor.submit(_know, work))
    # One that cannot have all its threads ends without a word, and what it was given would wait for ever.
    while not first.done():
        await asyncio.wait([first], timeout=_LOOK_S)
        runs = cast("Thread | None", executor._executor_manager_thread)
        if not first.done() and (runs is None or not runs.is_alive()):
            raise RuntimeError("its pool ended")
    first.result()


def _know(work: Callable[[_Task], _Result]) -> None:
    """Work that came here has had all that it needs loaded."""


def _ends() -> Unavailable:
    return Unavailable("the decoder ends", reason="SHUTTING_DOWN", help="ask another replica", retry_after_s=1)


def _begin(service: int) -> None:
    # A worker dies with the service, also with one that died while the worker started, and leaves Ctrl-C to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # What a part took serves the next: memory that is given back and taken anew costs more than to unpack a segment.
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
    libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
    # Each part has threads of its own: heaps of theirs would be made and given back with them.
    keep_little()
    if os.getppid() != service:
        os._exit(0)
