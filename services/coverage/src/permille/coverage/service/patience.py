"""Calls to services that may be away for a while: asked again until they are back, or patience ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import structlog
from permille.mesh.backoff import Backoff
from permille.mesh.errors import Code, PermilleError
from permille.mesh.interceptor import from_rpc_error

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
_AWAY = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


class Patience:
    """Counts from the last success: `limit_s` without any ends it."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._backoff = Backoff(0.1, 2.0)
        self._since: float | None = None

    async def until_answered(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """The answer of an idempotent call. Raises its `PermilleError`; UNAVAILABLE only after `limit_s`."""
        while True:
            try:
                answer = await attempt()
            except grpc.RpcError as error:
                await self._again(from_rpc_error(error))
            except PermilleError as error:
                await self._again(error)
            else:
                self.rewarded()
                return answer

    def rewarded(self) -> None:
        """Something was heard: the count begins anew."""
        self._since = None
        self._backoff.reset()

    async def _again(self, error: PermilleError) -> None:
        if error.code not in _AWAY:
            raise error
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
            _log.warning("a service does not answer; asking again", error=error.message, patience_s=self._limit_s)
        if now - self._since > self._limit_s:
            raise error
        await self._backoff.pause()
