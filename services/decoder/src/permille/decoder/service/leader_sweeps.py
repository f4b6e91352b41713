"""What one of the decoders does from time to time, for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from permille.mesh.election import Election
from permille.mesh.errors import PermilleError

_log = structlog.get_logger(__name__)


async def sweep_while_leading(election: Election, *sweeps: Callable[[], Awaitable[object]], every_s: float) -> None:
    """Every so often, while this decoder leads; until cancelled. One that fails keeps no other from its turn."""
    while True:
        for sweep in sweeps:
            try:
                await election.won()
                await sweep()
            except PermilleError as error:
                _log.warning("cannot look for what is to be deleted; trying again", error=error.message)
        await asyncio.sleep(every_s)
