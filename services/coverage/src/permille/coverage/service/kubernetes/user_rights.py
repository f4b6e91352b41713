"""Since when the API server has asked about every user: changes of a policy leave no time, so operators keep it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import structlog
from permille.coverage.domain.kubernetes.admission import made_so, trouble, version
from permille.coverage.service.kubernetes.cluster import Cluster, may_pass
from permille.mesh.etcd import Etcd

KEY = "/permille/v1/operator/admission"
# Who asks for a recording so soon after a change of the policy is told to ask again.
_LOOK_S = 10.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Asked:
    """Since when (RFC 3339, by the API server's clock) every user is asked for, or why not every one is."""

    since: str = ""
    why_not: str = ""


class UserRights:
    """The admission policy and its binding as they are, and since when it is known that they are so."""

    def __init__(self, cluster: Cluster, etcd: Etcd) -> None:
        self._cluster = cluster
        self._etcd = etcd

    async def run(self) -> None:
        """Looks every so often, whether anybody asks or not; until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:
                if not may_pass(error):
                    raise
                _log.warning("cannot look at the admission policy now; trying again", error=str(error))
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> Asked:
        """Raises what `Cluster` raises, and `Unavailable` without etcd."""
        policy, binding, seen = await self._cluster.admission()
        why_not = trouble(policy, binding)
        if why_not or policy is None or binding is None:
            return Asked(why_not=why_not)
        return Asked(made_so(policy, binding) or await self._first_seen(version(policy, binding), seen))

    async def _first_seen(self, version: str, seen: str) -> str:
        """Of this version, by whichever operator. One that was asked before a change makes it later, never earlier."""
        before = await self._etcd.get(KEY)
        known = json.loads(before.value) if before else {}
        if known.get("version") == version:
            return str(known["since"])
        await self._etcd.put(KEY, json.dumps({"version": version, "since": seen}).encode())
        return seen
