"""After each round of an operation: what it brought, and whether another one follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from permille.api.controller.v1 import controller_pb2
from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.coverage_by_version import Ledger
from permille.coverage.domain.profile import Profile
from permille.coverage.domain.rounds import Action, Evidence, Verdict, Worth, longest_round_ms, next_round
from permille.coverage.service.session_profiles import SessionProfiles

Round = coverage_pb2.Round
_ACTIONS = {
    Action.REPLICA: Round.ACTION_REPLICA,
    Action.LONGER: Round.ACTION_LONGER,
    Action.STOP: Round.ACTION_STOP,
}


class AdaptiveRounds:
    """Judges rounds from the tables; the state of an operation is changed here and saved by whoever calls."""

    def __init__(self, profiles: SessionProfiles, worth: Worth, *, history: int, longest_ms: int) -> None:
        self._profiles = profiles
        self._worth = worth
        self._history = history
        self._longest_ms = longest_round_ms(longest_ms)

    async def judge(
        self,
        wanted: coverage_pb2.AdaptiveRounds,
        state: coverage_pb2.CoverageState,
        sessions: Mapping[int, controller_pb2.Session],
    ) -> None:
        """Adds the present round with its verdict to the state, and to its plan the sessions of the next one."""
        present = present_round(state)
        own = [_id(state.sessions[index]) for index in sorted(sessions)]
        profiles = [profile async for profile in self._profiles.read(own, edges=False)]
        newest = profiles[-len(present) :]
        before = await self._before(sessions[present[-1]].target_name, profiles)
        ledger = Ledger()
        for profile in (*before, *profiles[: -len(present)]):
            ledger.add(profile)
        new = sum(ledger.add(profile) for profile in newest)
        last = _id(state.sessions[present[-1]])
        evidence = Evidence(
            sessions=ledger.together(),
            windows=await self._profiles.windows(last),
            session_bytes=sum(profile.raw_bytes for profile in newest) // len(newest),
            core_seconds=await self._profiles.core_seconds(last),
            period_ms=state.plan.nodes[present[-1]].period_ms,
        )
        verdict = next_round(
            evidence,
            self._worth_of(wanted),
            done=len(state.rounds) + 1,
            limit=wanted.limit,
            unused=state.later_used < len(state.plan.later),
            longest_ms=self._longest_ms,
        )
        state.rounds.add(
            nodes=present,
            new_functions=new,
            functions=len(ledger.functions),
            raw_bytes=sum(profile.raw_bytes for profile in newest),
            next=_ACTIONS[verdict.action],
            reason=verdict.reason,
            expected_new_functions=verdict.best.new_functions if verdict.best else 0.0,
        )
        _go_on(state, verdict)

    def _worth_of(self, wanted: coverage_pb2.AdaptiveRounds) -> Worth:
        worth = self._worth
        if wanted.min_gain:
            worth = replace(worth, functions_per_mib=wanted.min_gain)
        if wanted.min_gain_per_core_second:
            worth = replace(worth, functions_per_core_second=wanted.min_gain_per_core_second)
        return worth

    async def _before(self, target: str, own: Sequence[Profile]) -> list[Profile]:
        """Earlier sessions of the program, without those that ran another build of anything that ran now."""
        ids, _ = await self._profiles.of_target(target, self._history)
        known = {profile.session_id for profile in own}
        now = {(f.module, f.build_id) for profile in own for f in profile.functions}
        modules = {module for module, _ in now}
        found = []
        async for profile in self._profiles.read([name for name in ids if name not in known], edges=False):
            versions = {(f.module, f.build_id) for f in profile.functions if f.module in modules}
            if versions <= now:
                found.append(profile)
        return found


def present_round(state: coverage_pb2.CoverageState) -> list[int]:
    """Places in the plan of the round that is not over."""
    return list(range(sum(len(over.nodes) for over in state.rounds), len(state.plan.nodes)))


def over(state: coverage_pb2.CoverageState) -> bool:
    """Whether the last verdict was to stop."""
    return bool(state.rounds) and state.rounds[-1].next == Round.ACTION_STOP


def skip(state: coverage_pb2.CoverageState, why: str, limit: int) -> None:
    """The present round could not be recorded: the next replica has its turn, or that was all."""
    left = state.later_used < len(state.plan.later) and len(state.rounds) + 1 < limit
    verdict = Verdict(Action.REPLICA if left else Action.STOP, f"not recorded: {why}")
    state.rounds.add(nodes=present_round(state), next=_ACTIONS[verdict.action], reason=verdict.reason)
    _go_on(state, verdict)


def _go_on(state: coverage_pb2.CoverageState, verdict: Verdict) -> None:
    last = state.plan.nodes[-1]
    if verdict.action is Action.REPLICA:
        # When all had their turn, the one whose turn was longest ago: it serves other requests now.
        turns = [state.plan.nodes[0], *state.plan.later]
        state.later_used += 1
        state.plan.nodes.append(_lasting(turns[state.later_used % len(turns)], last.period_ms))
    elif verdict.action is Action.LONGER and verdict.best is not None:
        longer = _lasting(last, verdict.best.period_ms)
        longer.expected_bytes = verdict.best.size_bytes
        state.plan.nodes.append(longer)


def _lasting(planned: coverage_pb2.NodePlan, period_ms: int) -> coverage_pb2.NodePlan:
    """The session with this period, of which its gain was expected, and with what that will probably take."""
    session = coverage_pb2.NodePlan()
    session.CopyFrom(planned)
    if period_ms != planned.period_ms:
        times = period_ms / planned.period_ms
        session.period_ms = period_ms
        session.expected_bytes = round(times * planned.expected_bytes)
        session.expected_core_seconds = times * planned.expected_core_seconds
        session.ClearField("period_terms")
    return session


def _id(session: str) -> str:
    return session.rpartition("/")[2]
