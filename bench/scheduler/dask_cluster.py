"""A Dask cluster on this machine, started by the two commands of docs/operations.md."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from workload import READY_S, free_port, process, wait_for_port

SCHEDULER = ["dask", "scheduler", "--host", "127.0.0.1", "--no-dashboard"]
WORKER = ["dask", "worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60"]


@contextlib.contextmanager
def dask_cluster(workers: int, folder: str) -> Iterator[str]:
    """The scheduler's address."""
    from distributed import Client

    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(process([*SCHEDULER, "--port", str(port)], stderr=-3, text=True))
        wait_for_port(port, scheduler)
        for _ in range(workers):
            stack.enter_context(process([*WORKER, "--local-directory", folder, address], stderr=-3, text=True))
        with Client(address, set_as_default=False) as client:  # type: ignore[no-untyped-call]
            client.wait_for_workers(workers, timeout=READY_S)
        time.sleep(0.5)
        yield address
