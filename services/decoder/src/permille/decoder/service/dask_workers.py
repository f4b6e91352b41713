"""Worker processes of a Dask cluster, which others start: `dask scheduler` and `dask worker`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client, KilledWorker
from distributed.security import Security
from permille.decoder.service.dask_task import run_alone_on_dask, run_on_dask
from permille.mesh.errors import FailedPrecondition, InvalidArgument, Unavailable
from permille.mesh.plaintext import require_loopback

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_CONNECT_S = 10.0
_WORKERS_S = 15.0
_LOOK_S = 2.0


@dataclass(frozen=True)
class ClusterTls:
    """The authority of a cluster, a certificate of it and the key: PEM files.

    Not the mesh's own: any certificate of the cluster's authority lets its holder run code on the workers.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def security(self) -> Security:
        """Raises `FailedPrecondition` when a file is not named or not there."""
        files = {"tls_ca_file": self.ca, "tls_client_cert": self.cert, "tls_client_key": self.key}
        for path, setting in zip(files.values(), ("dask_tls_ca", "dask_tls_cert", "dask_tls_key"), strict=True):
            if path is None or not path.is_file():
                raise FailedPrecondition(
                    f"a Dask scheduler at tls:// needs decoder.{setting}, which is {str(path) if path else 'not set'}",
                    reason="DASK_TLS_FILE",
                    help="create an authority for the cluster alone: docs/operations.md, Decoding on a Dask cluster",
                    metadata={"field": f"decoder.{setting}"},
                )
        named: dict[str, Any] = {name: str(path) for name, path in files.items()}
        return Security(require_encryption=True, **named)  # type: ignore[no-untyped-call]


class DaskWorkers:
    """`Workers` of the cluster whose scheduler is at `address`; connects when there is work, again after a loss.

    Dask itself repeats tasks whose worker ended, `distributed.scheduler.allowed-failures` times (3).
    """

    def __init__(self, address: str, security: Security | None) -> None:
        self._address = address
        self._security = security
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._slots = 1
        self._counted = self._looked = 0.0
        self._left: Unavailable | None = None

    @property
    def slots(self) -> int:
        """Two for each thread of the cluster, as of a moment ago."""
        return self._slots

    async def submit(self, work: Callable[[_Task], _Result], task: _Task, priority: int) -> Future[_Result]:
        """See `Workers`."""
        executor = await self._executor()
        begun: Future[_Result] = executor.submit(run_on_dask, work, task, priority=priority)
        return begun

    async def submit_alone(self, work: Callable[[_Task], _Result], task: _Task, priority: int) -> Future[_Result]:
        """See `Workers`: a child of a Dask worker, so that its end is the task's own fault."""
        executor = await self._executor()
        begun: Future[_Result] = executor.submit(run_alone_on_dask, work, task, priority=priority)
        return begun

    async def require(self) -> None:
        """See `Workers`."""
        async with self._connecting:
            client = self._client
            if client is None or client.status != "running":
                # With the connection went what was begun: its futures say so.
                return
            if time.monotonic() - self._looked > _LOOK_S:
                self._left = await asyncio.to_thread(self._all_left, client)
                self._looked = time.monotonic()
            if self._left is not None:
                raise self._left

    def lost(self, error: BaseException) -> bool:
        """See `Workers`."""
        return isinstance(error, KilledWorker)

    def close(self) -> None:
        """Leaves the cluster, which cancels what was begun."""
        client, self._client = self._client, None
        if client is not None:
            _leave(client)

    async def _executor(self) -> Any:
        async with self._connecting:
            if self._client is not None and self._client.status != "running":
                await asyncio.to_thread(self.close)
            if self._client is None:
                self._client = await asyncio.to_thread(self._connected)
            client = self._client
            if time.monotonic() - self._counted > _LOOK_S:
                self._slots = 2 * await asyncio.to_thread(self._threads, client)
                self._counted = self._looked = time.monotonic()
                self._left = None
        # Not pure: a decode that is done again is to be done again.
        return client.get_executor(pure=False)  # type: ignore[no-untyped-call]

    def _connected(self) -> Client:
        try:
            return Client(  # type: ignore[no-untyped-call]
                self._address,
                security=self._security,
                timeout=_CONNECT_S,
                name="permille-decoder",
                set_as_default=False,
            )
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._away(str(error)) from error
        except AssertionError as error:
            # Dask's own: what its scheduler tells all clients came together with its first word to this one.
            raise self._away("it spoke of others' work first") from error

    def _threads(self, client: Client) -> int:
        try:
            # They may all be on their way back from a task that ended them.
            client.wait_for_workers(1, timeout=_WORKERS_S)
            return sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        except TimeoutError:
            raise Unavailable(
                f"the Dask cluster at {self._address} has no workers",
                reason="DASK_NO_WORKERS",
                help=f"start some with `dask worker {self._address}`, of this decoder's release of permille; the logs"
                " of those that there were say why they left",
                metadata={"address": self._address},
                retry_after_s=5,
            ) from None
        except OSError as error:
            raise self._away(str(error)) from error

    def _all_left(self, client: Client) -> Unavailable | None:
        with suppress(OSError):
            # One that pauses, for want of memory, goes on with what it has.
            if not client.nthreads():  # type: ignore[no-untyped-call]
                try:
                    self._threads(client)
                except Unavailable as error:
                    return error
        return None

    def _away(self, why: str) -> Unavailable:
        return Unavailable(
            f"the Dask scheduler at {self._address} cannot be reached: {why}",
            reason="DASK_UNAVAILABLE",
            help='start it with `dask scheduler`, or decode here with decoder.executor = "local"',
            metadata={"address": self._address},
            retry_after_s=5,
        )


def dask_workers(address: str, tls: ClusterTls) -> DaskWorkers:
    """The workers at `tcp://HOST:PORT` (this machine only) or `tls://HOST:PORT`.

    Raises `InvalidArgument` for another address, `FailedPrecondition` for plain text that would leave the machine
    (whoever reaches a scheduler runs code on its workers) and for TLS without its files.
    """
    scheme, _, endpoint = address.partition("://")
    host, _, port = endpoint.rpartition(":")
    if scheme not in ("tcp", "tls") or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidArgument(
            f"decoder.dask_scheduler is {address!r}",
            reason="DASK_ADDRESS",
            help="set it to what `dask scheduler` prints: tcp://HOST:PORT, or tls://HOST:PORT",
            metadata={"field": "decoder.dask_scheduler"},
        )
    if scheme == "tls":
        return DaskWorkers(address, tls.security())
    require_loopback(endpoint, what="use the Dask scheduler at", setting="decoder.dask_scheduler = tls://HOST:PORT")
    return DaskWorkers(address, None)


def _leave(client: Client) -> None:
    with suppress(OSError, TimeoutError):
        client.close(timeout=2)  # type: ignore[no-untyped-call]
