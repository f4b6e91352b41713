"""Asks the inventory what can be recorded and lets the domain plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.coverage_by_version import Ledger
from permille.coverage.domain.node import Listing
from permille.coverage.domain.plan import Plan, Policy, Wish, plan
from permille.coverage.domain.quota import Room
from permille.coverage.domain.rates import Rates
from permille.coverage.service.coverage_reader import version_message
from permille.coverage.service.inventory import Inventory
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.stability_store import StabilityStore
from permille.coverage.service.wire import plan_message, wish_of
from permille.mesh.errors import PermilleError

# A plan does not wait longer for what would only be good to know.
_OUTLOOK_S = 20.0


@dataclass(frozen=True)
class Survey:
    """A wish, and what there is to fulfil it."""

    wish: Wish
    listing: Listing
    rates: Mapping[str, Rates]
    issues: Mapping[str, float]


class Planner:
    """Plans without doing anything."""

    def __init__(
        self,
        inventory: Inventory,
        rates: RateStore,
        stability: StabilityStore,
        profiles: SessionProfiles,
        policy: Policy,
        *,
        history: int,
    ) -> None:
        self._inventory = inventory
        self._rates = rates
        self._stability = stability
        self._profiles = profiles
        self._policy = policy
        self._history = history

    async def survey(self, request: coverage_pb2.CoverageRequest) -> Survey:
        """All that a plan needs. Raises `InvalidArgument`, `NotFound` for an unknown node, `Unavailable`."""
        wish = wish_of(request)
        listing = await self._inventory.nodes(wish.target)
        names = {process.name for node in listing.nodes for process in node.recordable}
        rates: dict[str, Rates] = {}
        for backend in sorted({process.backend for node in listing.nodes for process in node.recordable}):
            rates |= await self._rates.of(backend, names)
        return Survey(wish, listing, rates, await self._stability.of(names))

    def plan(self, found: Survey, room: Room) -> tuple[coverage_pb2.Plan, Plan]:
        """What a start would do, as it is told and as it is meant. Raises what the domain's `plan` raises."""
        made = plan(found.wish, found.listing.nodes, found.rates, policy=self._policy, issues=found.issues, room=room)
        return plan_message(made, found.listing.unreachable), made

    async def add_outlook(self, planned: coverage_pb2.Plan) -> None:
        """What has been seen of the plan's programs and what will probably be missing, where that can be had."""
        with suppress(PermilleError, TimeoutError):
            async with asyncio.timeout(_OUTLOOK_S):
                for name in sorted({choice.process_name for choice in planned.choices if choice.chosen}):
                    await self._add_outlook(planned, name)

    async def _add_outlook(self, planned: coverage_pb2.Plan, name: str) -> None:
        ids, _ = await self._profiles.of_target(name, self._history, patience_s=0)
        ledger = Ledger()
        async for profile in self._profiles.read(ids, edges=False):
            ledger.add(profile)
        sessions = len(planned.nodes)
        planned.coverage.extend(version_message(seen, seen.missing_after(sessions)) for seen in ledger.by_version())
