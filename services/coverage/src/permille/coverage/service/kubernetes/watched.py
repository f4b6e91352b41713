"""Everything that the operator knows of the cluster, by watches: looking again costs the API server nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from permille.coverage.domain.kubernetes.conditions import ACCEPTED, is_finished, is_true
from permille.coverage.domain.kubernetes.pods import pod_of, zone_of
from permille.coverage.domain.kubernetes.wish import Policy, policy_of
from permille.coverage.service.kubernetes.cluster import POLICIES, REQUESTS, Cluster, everywhere
from permille.coverage.service.kubernetes.reflector import Reflector
from permille.mesh.errors import Unavailable


@dataclass(frozen=True)
class Known:
    """A TraceRequest: whether it is active, and its places as node, container id and TraceSession."""

    uid: str
    active: bool
    places: tuple[tuple[str, str, str], ...] = ()


class Watched:
    """Pods, the zones of nodes, TraceRequests and TracePolicies; `run` keeps them up to date.

    `ready_s`: how long an answer waits for what the API server has not told yet.
    """

    def __init__(self, cluster: Cluster, *, ready_s: float = 10.0) -> None:
        self._ready_s = ready_s
        self.pods = Reflector(cluster, "/api/v1/pods", pod_of, self._change)
        self.zones = Reflector(cluster, "/api/v1/nodes", zone_of, self._change)
        self.policies = Reflector(cluster, everywhere(POLICIES), _policy, self._change)
        self.requests = Reflector(cluster, everywhere(REQUESTS), known, self._change)
        self._every: tuple[Reflector[Any], ...] = (self.pods, self.zones, self.policies, self.requests)
        # Set by the next change of anything; then there is another one.
        self.news = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._every:
                group.create_task(one.run())

    async def ready(self) -> None:
        """Returns when everything is known. Raises `Unavailable` when the API server does not tell it for a while."""
        for one in self._every:
            try:
                await asyncio.wait_for(one.current.wait(), self._ready_s)
            except TimeoutError:
                raise Unavailable(
                    f"the API server does not tell what there is: {one.trouble}",
                    reason="INVENTORY_UNAVAILABLE",
                    help="look at the API server, and at what the operator may list and watch",
                ) from None

    def active(self, namespace: str, but: str) -> int:
        """How many requests of a namespace are active, besides the one with this UID."""
        return sum(one.active and one.uid != but for one in self.requests.of(namespace).values())

    def recorded(self) -> dict[str, tuple[str, str]]:
        """Node and TraceSession of the containers that active requests mean, by container id."""
        return {
            container_id: (node, session)
            for names in self.requests.all().values()
            for one in names.values()
            if one.active
            for node, container_id, session in one.places
        }

    def _change(self) -> None:
        self.news.set()
        self.news = asyncio.Event()


def known(body: Mapping[str, Any]) -> Known:
    """A TraceRequest as the API server gives it."""
    status = body.get("status") or {}
    active = is_true(status, ACCEPTED) and not is_finished(status)
    places = status.get("sessions") or [] if active else []
    return Known(
        body["metadata"]["uid"],
        active,
        tuple((place["nodeName"], place["containerID"], place["name"]) for place in places),
    )


def _policy(body: Mapping[str, Any]) -> Policy:
    return policy_of(body["spec"])
