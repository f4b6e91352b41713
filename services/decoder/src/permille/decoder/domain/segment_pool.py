"""Hands tasks to workers, the most urgent first; a task that kills its worker costs itself only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from permille.decoder.domain.workers import Workers, WorkersDied
from permille.mesh.errors import Unavailable
from permille.mesh.priority_gate import PriorityGate

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
# A cluster whose workers come or go is looked at so often.
_LOOK_S = 1.0


class SegmentPool(Generic[_Task, _Result]):
    """Runs `work` in `workers`. Close it at the end."""

    def __init__(self, work: Callable[[_Task], _Result], workers: Workers) -> None:
        self._work = work
        self._workers = workers
        self._gate = PriorityGate(lambda: self.slots)
        # Those under suspicion take turns.
        self._alone = PriorityGate(lambda: 1)

    @property
    def slots(self) -> int:
        """How many tasks are with the workers at once; further ones wait for their turn."""
        return max(1, self._workers.slots)

    async def run(
        self,
        task: _Task,
        *,
        priority: int = 0,
        alone: bool = False,
        begun: Callable[[], Awaitable[None]] | None = None,
    ) -> _Result:
        """`alone`: at once in a process of its own, for a task that is known to be dangerous. `begun`: called when
        workers have it.

        Raises what `work` raises, `WorkerDied` when it ends the process, `Unavailable` when there are no workers, or
        all of them leave.
        """
        if not alone:
            async with self._gate.turn(priority):
                done = await self._done(self._workers.submit(self._work, task, priority), begun)
            error = done.exception()
            if error is None or not self._workers.lost(error):
                return done.result()
        async with self._alone.turn(priority):
            done = await self._done(self._workers.submit_alone(self._work, task, priority), begun)
        error = done.exception()
        if error is not None and self._workers.lost(error):
            # With all its memory gone, a process may take along those that it was meant to spare.
            raise WorkersDied from error
        return done.result()

    async def watch(self) -> None:
        """Lets more tasks in when workers were added; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._gate.look()

    def close(self) -> None:
        """Ends the workers."""
        self._workers.close()

    async def _done(
        self, submitted: Awaitable[Future[_Result]], begun: Callable[[], Awaitable[None]] | None
    ) -> asyncio.Future[_Result]:
        done = asyncio.wrap_future(await submitted)
        try:
            if begun is not None:
                await begun()
            while not (await asyncio.wait([done], timeout=_LOOK_S))[0]:
                await self._workers.require()
        except BaseException:
            done.cancel()
            raise
        if done.cancelled():
            raise Unavailable(
                "the connection to the decoder's workers was lost",
                reason="WORKERS_LOST",
                help="see whether the Dask scheduler at `decoder.dask_scheduler` runs",
                retry_after_s=1,
            )
        return done
