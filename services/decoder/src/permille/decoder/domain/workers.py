"""What runs the work on segments: a `concurrent.futures.Executor`, wherever its processes are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from permille.mesh.errors import Unavailable

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class WorkerDied(Exception):  # noqa: N818 - it tells what happened
    """The worker process ended while it worked on this task alone."""


class WorkersDied(WorkerDied):
    """With the process ended those that it was in, one after the other: the task's doing, or somebody else's."""


def no_worker(why: str) -> Unavailable:
    """A process that ended, or could not be made, before it had any task: that is no task's fault."""
    return Unavailable(
        f"no worker process can be started: {why}",
        reason="NO_WORKER",
        help="give the decoder more processes, threads or memory (limits of its container or service, `ulimit -a`)",
        retry_after_s=5,
    )


class Workers(Protocol):
    """Processes that work; `work` and its task go to them pickled."""

    @property
    def slots(self) -> int:
        """How many tasks keep all of them busy, with one more each that waits there."""

    async def submit(self, work: Callable[[_Task], _Result], task: _Task, priority: int) -> Future[_Result]:
        """Begins. Raises `Unavailable` when there is nothing to run it.

        The future raises what `work` raises, or an error that is `lost`; it is cancelled when the workers are away.
        """

    async def submit_alone(self, work: Callable[[_Task], _Result], task: _Task, priority: int) -> Future[_Result]:
        """As `submit`, in a process of its own; the future raises `WorkerDied` when the task ends it."""

    async def require(self) -> None:
        """Raises `Unavailable` when nobody is left who would do what was begun."""

    def lost(self, error: BaseException) -> bool:
        """Whether an error of a future of `submit` says that a worker ended."""

    def close(self) -> None:
        """Ends what was begun, and the workers if they are this process's own."""
