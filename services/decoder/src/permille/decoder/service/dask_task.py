"""What a Dask worker does with a task."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from distributed import get_worker
from permille.decoder.domain.lone_process import run_in_lone_process
from permille.decoder.domain.part_decoder import PartTask
from permille.mesh.errors import PermilleError, error_of

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def run_on_dask(work: Callable[[_Task], _Result], task: _Task) -> _Result:
    """What `work` returns. Raises what it raises; `PermilleError`s name this worker."""
    with _named():
        return work(_placed(task))


def run_alone_on_dask(work: Callable[[_Task], _Result], task: _Task) -> _Result:
    """The same in a child of this worker. Raises what `run_in_lone_process` raises, with this worker's name."""
    with _named():
        return run_in_lone_process(work, _placed(task))


def _placed(task: _Task) -> _Task:
    """With this worker's own folder, which vanishes with it (`dask worker --local-directory`): a child has none."""
    if isinstance(task, PartTask):
        return replace(task, folder=get_worker().local_directory)
    return task


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except PermilleError as error:
        worker, host = get_worker().address, socket.gethostname()
        raise error_of(
            error.code,
            f"the Dask worker {worker} on {host}: {error.message}",
            reason=error.reason,
            help=error.help,
            metadata=error.metadata | {"worker": worker, "host": host},
            retry_after_s=error.retry_after_s,
        ) from error
