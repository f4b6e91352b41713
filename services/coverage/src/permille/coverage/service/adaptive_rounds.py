"""After each round of an operation: what it brought, and whether another one follows."""

from __future__ import annotations

from collections.abc import Iterable

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.rounds import Action, Verdict, passed_over
from permille.coverage.service.round_judge import ACTIONS, RoundJudge

Round = coverage_pb2.Round


class AdaptiveRounds:
    """The rounds of operations; an operation's state is changed here and saved by whoever calls."""

    def __init__(self, judge: RoundJudge) -> None:
        self._judge = judge

    async def judge(
        self, wanted: coverage_pb2.AdaptiveRounds, state: coverage_pb2.CoverageState, sessions: Iterable[int]
    ) -> None:
        """Adds the present round with its verdict to the state, and to its plan the session of the next one.

        `sessions`: places in the plan of what is recorded and decoded.
        """
        told, verdict = await self._judge.judge(
            [_id(state.sessions[index]) for index in sorted(sessions)],
            wanted,
            done=len(state.rounds) + 1,
            unused=state.later_used < len(state.plan.later),
        )
        told.nodes.extend(present_round(state))
        state.rounds.append(told)
        _go_on(state, verdict)


def present_round(state: coverage_pb2.CoverageState) -> list[int]:
    """Places in the plan of the round that is not over."""
    return list(range(sum(len(over.nodes) for over in state.rounds), len(state.plan.nodes)))


def over(state: coverage_pb2.CoverageState) -> bool:
    """Whether the last verdict was to stop."""
    return bool(state.rounds) and state.rounds[-1].next == Round.ACTION_STOP


def skip(state: coverage_pb2.CoverageState, why: str, limit: int) -> None:
    """The present round could not be recorded: the next replica has its turn, or that was all."""
    others = state.later_used < len(state.plan.later)
    verdict = passed_over(why, done=len(state.rounds) + 1, limit=limit, others=others)
    state.rounds.add(nodes=present_round(state), next=ACTIONS[verdict.action], reason=verdict.reason)
    _go_on(state, verdict)


def stop(state: coverage_pb2.CoverageState, why: str) -> None:
    """The present round was recorded, and nobody can tell whether another one would be worth it."""
    state.rounds.add(nodes=present_round(state), next=Round.ACTION_STOP, reason=f"what it brought is not known: {why}")


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
