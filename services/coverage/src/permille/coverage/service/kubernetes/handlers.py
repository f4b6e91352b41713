"""What kopf is asked to watch and to call."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from typing import Any

import kopf
from kubernetes_asyncio import client
from permille.coverage.domain.kubernetes.conditions import is_finished
from permille.coverage.service.kubernetes.cluster import AWAY, GROUP, REQUESTS, VERSION, configured
from permille.coverage.service.kubernetes.request_work import RequestWork
from permille.mesh.errors import PermilleError

_FINALIZER = "permille.dev/recordings"
_ANNOTATIONS = "operator.permille.dev"


class Backoffs:
    """Between kopf's attempts, without an end: after the last one it gives up, however long an API server is away."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1.0, 1.0, 2.0, 3.0, 5.0), itertools.repeat(10.0))


def settings() -> kopf.OperatorSettings:
    """kopf's settings: its marks carry this project's name, and it needs no rights beyond the objects it watches."""
    chosen = kopf.OperatorSettings()
    chosen.persistence.finalizer = _FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=_ANNOTATIONS)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=_ANNOTATIONS)
    chosen.scanning.disabled = True
    chosen.posting.loggers = False
    chosen.networking.error_backoffs = Backoffs()
    # A watch that lost its server without a word ends, and the list is read anew.
    chosen.watching.server_timeout = 240
    chosen.watching.client_timeout = 300
    return chosen


def registry(work: RequestWork) -> kopf.OperatorRegistry:
    """The handlers of TraceRequests."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection(await configured())

    @kopf.daemon(GROUP, VERSION, REQUESTS, registry=handlers, backoff=5, cancellation_timeout=10)
    async def follow(namespace: str | None, name: str, uid: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
        def tell(about: Any, kind: str, reason: str, message: str) -> None:
            kopf.event(kopf.Body(about), type=kind, reason=reason, message=message)

        task = asyncio.create_task(work.follow(str(namespace), name, uid, tell))
        ending = asyncio.create_task(_set(stopped))
        try:
            await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            task.cancel()
            ending.cancel()
            await asyncio.gather(task, ending, return_exceptions=True)

    @kopf.on.delete(GROUP, VERSION, REQUESTS, registry=handlers, backoff=5)
    async def stop(namespace: str | None, name: str, uid: str, status: kopf.Status, **_: Any) -> None:
        if is_finished(status):
            return
        try:
            await work.stop(str(namespace), name, uid)
        except (PermilleError, client.ApiException, *AWAY) as error:
            # The object stays until its recordings are known to be over.
            raise kopf.TemporaryError(f"cannot stop the recordings now: {error}", delay=5) from None

    return handlers


async def connection(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """The same server and the same identity for kopf."""
    key = configuration.get_api_key_with_prefix("BearerToken")
    token = (await key if isinstance(key, Coroutine) else key) or ""
    return kopf.ConnectionInfo(
        server=str(configuration.host),
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        token=token.removeprefix("Bearer ") or None,
    )


async def _set(stopped: Any) -> None:
    await stopped.wait()
