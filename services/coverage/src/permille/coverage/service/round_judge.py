"""Whether another round follows, from the tables: of an operation's own rounds, and of those that others conduct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.coverage_by_version import Ledger
from permille.coverage.domain.profile import Profile
from permille.coverage.domain.rounds import Action, Evidence, Verdict, Worth, longest_round_ms, next_round
from permille.coverage.service.session_profiles import SessionProfiles

Round = coverage_pb2.Round
ACTIONS = {
    Action.REPLICA: Round.ACTION_REPLICA,
    Action.LONGER: Round.ACTION_LONGER,
    Action.STOP: Round.ACTION_STOP,
}


class RoundJudge:
    """Reads what the domain decides by; `worth`: what another round must bring where a request does not say."""

    def __init__(self, profiles: SessionProfiles, worth: Worth, *, history: int, longest_ms: int) -> None:
        self._profiles = profiles
        self._worth = worth
        self._history = history
        self._longest_ms = longest_round_ms(longest_ms)

    async def judge(
        self,
        sessions: Sequence[str],
        wanted: coverage_pb2.AdaptiveRounds,
        *,
        done: int,
        unused: bool,
        longest_ms: int = 0,
    ) -> tuple[coverage_pb2.Round, Verdict]:
        """The newest round, which recorded the last of these session ids, and what comes after it.

        `done`: rounds that are over. `unused`: whether there are replicas without a turn. `longest_ms`: to which a
        period is doubled, where that is less than the service's own. Raises what `SessionProfiles` raises for the last
        one; earlier ones that were deleted meanwhile count no longer.
        """
        (newest,) = [profile async for profile in self._profiles.read(sessions[-1:], edges=False)]
        earlier = [profile async for profile in self._profiles.read(sessions[:-1], edges=False, or_gone=True)]
        ledger = Ledger()
        for profile in (*await self._before(newest.target, (*earlier, newest)), *earlier):
            ledger.add(profile)
        new = ledger.add(newest)
        evidence = Evidence(
            sessions=ledger.together(),
            windows=await self._profiles.windows(newest.session_id),
            session_bytes=newest.raw_bytes,
            core_seconds=await self._profiles.core_seconds(newest.session_id),
            period_ms=newest.period_ms,
        )
        verdict = next_round(
            evidence,
            self._worth_of(wanted),
            done=done,
            limit=wanted.limit,
            unused=unused,
            longest_ms=min(longest_ms or self._longest_ms, self._longest_ms),
        )
        told = Round(
            new_functions=new,
            functions=len(ledger.functions),
            raw_bytes=newest.raw_bytes,
            next=ACTIONS[verdict.action],
            reason=verdict.reason,
            expected_new_functions=verdict.best.new_functions if verdict.best else 0.0,
        )
        return told, verdict

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
        others = [name for name in ids if name not in known]
        async for profile in self._profiles.read(others, edges=False, or_gone=True):
            versions = {(f.module, f.build_id) for f in profile.functions if f.module in modules}
            if versions <= now:
                found.append(profile)
        return found
