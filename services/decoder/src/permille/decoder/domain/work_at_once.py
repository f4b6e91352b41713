"""Blocking work of a loop that has nothing else to do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class WorkAtOnce(ThreadPoolExecutor):
    """For `set_default_executor`, which takes nothing else than threads: the work is done where it is asked for.

    The way to a thread and back takes ten times as long as to ask whether a file is there.
    """

    def submit(self, work: Callable[..., _Result], /, *args: Any, **named: Any) -> Future[_Result]:
        """Done when it comes back."""
        done: Future[_Result] = Future()
        try:
            done.set_result(work(*args, **named))
        except BaseException as error:
            done.set_exception(error)
        return done
