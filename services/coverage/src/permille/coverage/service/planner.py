"""Asks the inventory what can be recorded and lets the domain plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.coverage_by_version import Ledger
from permille.coverage.domain.node import Listing
from permille.coverage.domain.outlook import expected_slowdown, further_sessions
from permille.coverage.domain.plan import Plan, Policy, Wish, plan
from permille.coverage.domain.quota import Room
from permille.coverage.domain.rates import Rates
from permille.coverage.service.coverage_reader import version_message
from permille.coverage.service.inventory import Inventory
from permille.coverage.service.rate_store import RateStore
from permille.coverage.service.session_profiles import SessionProfiles
from permille.coverage.service.stability_store import StabilityStore
from permille.coverage.service.wire import backend_word, plan_message, wish_of
from permille.mesh.errors import PermilleError

# A plan does not wait longer for what would only be good to know.
_OUTLOOK_S = 20.0


@dataclass(frozen=True)
class Survey:
    """A wish, and what there is to fulfil it."""

    wish: Wish
    listing: Listing
    # By back end and process name.
    rates: Mapping[tuple[str, str], Rates]
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
        slowdowns: Mapping[str, float],
    ) -> None:
        self._inventory = inventory
        self._rates = rates
        self._stability = stability
        self._profiles = profiles
        self._policy = policy
        self._history = history
        self._slowdowns = slowdowns

    async def survey(self, request: coverage_pb2.CoverageRequest) -> Survey:
        """All that a plan needs. Raises `InvalidArgument`, `NotFound` for an unknown node, `Unavailable`."""
        wish = wish_of(request)
        listing = await self._inventory.nodes(wish.target)
        names = {process.name for node in listing.nodes for process in node.recordable}
        rates: dict[tuple[str, str], Rates] = {}
        for backend in sorted({process.backend for node in listing.nodes for process in node.recordable}):
            rates |= {(backend, name): known for name, known in (await self._rates.of(backend, names)).items()}
        return Survey(wish, listing, rates, await self._stability.of(names))

    def plan(self, found: Survey, room: Room) -> tuple[coverage_pb2.Plan, Plan]:
        """What a start would do, as it is told and as it is meant. Raises what the domain's `plan` raises."""
        made = plan(found.wish, found.listing.nodes, found.rates, policy=self._policy, issues=found.issues, room=room)
        planned = plan_message(made, found.listing.unreachable)
        instances = [choice.instance for choice in made.choices]
        written = {(f"nodes/{one.node.name}", one.process.pid): one.bytes_per_second for one in instances}
        for session in (*planned.nodes, *planned.later):
            session.expected_bytes_per_second = written[session.node, session.pids[0]]
            slowdown = expected_slowdown(
                backend_word(session.backend), session.expected_bytes_per_second, self._slowdowns
            )
            if slowdown is not None:
                session.expected_slowdown = slowdown
        return planned, made

    async def add_outlook(self, planned: coverage_pb2.Plan, rounds: int) -> None:
        """What has been seen of the plan's programs and what will probably be missing, where that can be had.

        `rounds`: how many there may be; 0: all sessions at once.
        """
        with suppress(PermilleError, TimeoutError):
            async with asyncio.timeout(_OUTLOOK_S):
                for name, periods_ms in sorted(_periods(planned, rounds).items()):
                    await self._add_outlook(planned, name, periods_ms)

    async def _add_outlook(self, planned: coverage_pb2.Plan, name: str, periods_ms: Sequence[int]) -> None:
        ids, _ = await self._profiles.of_target(name, self._history, patience_s=0)
        ledger, earlier_ms = Ledger(), []
        async for profile in self._profiles.read(ids, edges=False):
            ledger.add(profile)
            earlier_ms.append(profile.period_ms)
        sessions = further_sessions(periods_ms, earlier_ms)
        planned.coverage.extend(version_message(seen, seen.missing_after(sessions)) for seen in ledger.by_version())


def _periods(planned: coverage_pb2.Plan, rounds: int) -> dict[str, list[int]]:
    """By program the periods of its sessions, also of those that rounds may add: when all had their turn, all again."""
    turns = [planned.nodes[0], *planned.later]
    sessions = [*planned.nodes, *(turns[number % len(turns)] for number in range(1, rounds))]
    names = {(choice.node, choice.pid): choice.process_name for choice in planned.choices if choice.chosen}
    found: dict[str, list[int]] = {}
    for session in sessions:
        for name in {names[session.node, pid] for pid in session.pids}:
            found.setdefault(name, []).append(session.period_ms)
    return found
