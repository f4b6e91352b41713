"""Adaptive rounds over pods: each is written down before it begins, and coverage says whether another one follows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from permille.api.coverage.v1 import coverage_pb2
from permille.coverage.domain.kubernetes.turns import Place, Round, Turns, is_last, judged, place_of, round_of
from permille.coverage.domain.rounds import Action, passed_over
from permille.coverage.service.kubernetes.cluster import SESSIONS, Cluster, Object, is_transient
from permille.coverage.service.kubernetes.operations import Operations
from permille.coverage.service.kubernetes.request_progress import RequestProgress
from permille.coverage.service.kubernetes.session_work import SessionWork, Tell
from permille.mesh.errors import PermilleError

# Of a request of a former version nobody wrote down how long the policy lets it record: its periods stay.
_NEVER_LONGER_MS = 1


class PodRounds:
    """Begun again by another process it goes on with the round that is written down.

    `min_gain`, `min_gain_per_core_second`: new functions that another round must bring; 0: coverage's own settings.
    """

    def __init__(
        self,
        cluster: Cluster,
        operations: Operations,
        sessions: SessionWork,
        *,
        min_gain: float,
        min_gain_per_core_second: float,
    ) -> None:
        self._cluster = cluster
        self._operations = operations
        self._sessions = sessions
        self._min_gain = min_gain
        self._min_gain_per_core_second = min_gain_per_core_second

    async def run(self, request: Object, progress: RequestProgress, tell: Tell) -> None:
        """Takes an accepted request to the end of its last round.

        Raises `Unavailable` while coverage is away, `Aborted` when somebody else writes rounds, what `Cluster` raises.
        """
        places: Sequence[Place] = request["status"]["sessions"]
        if not progress.rounds or "number" not in progress.rounds[0]:
            await progress.decide(await self._begun_before(request, progress.rounds))
        recordings: list[str] = []
        had: list[tuple[str, bool]] = []
        while not had or not is_last(progress.rounds[len(had) - 1]):
            present = progress.rounds[len(had)]
            place = place_of(present, places)
            outcome = await self._sessions.run(request, place, tell, partial(progress.waits, place["name"]))
            progress.ended(place, outcome)
            recordings += outcome.recordings
            had.append((place["podUID"], bool(outcome.recordings)))
            if "next" not in present:
                turns = Turns([one["podUID"] for one in places], had)
                why_not = None if outcome.recordings else outcome.message
                await progress.decide(await self._followed(request, progress.rounds, turns, recordings, why_not))

    async def _followed(
        self, request: Object, rounds: Sequence[Round], turns: Turns, recordings: Sequence[str], why_not: str | None
    ) -> list[Round]:
        """The rounds with what comes after the last of them; `why_not`: why nothing was recorded in that."""
        *over, present = rounds
        limit = request["spec"]["rounds"]
        if why_not is not None:
            verdict = passed_over(why_not, done=len(rounds), limit=limit, others=turns.following is not None)
            action, reason = verdict.action, verdict.reason
            # A longer one may be what the quotas have no room for.
            known = [one for one, (_, recorded) in zip(rounds, turns.had, strict=True) if recorded]
            period_ms = (known or rounds[:1])[-1]["periodMilliseconds"]
        else:
            action, period_ms, reason = await self._judge(request, turns, recordings)
        over.append(judged(present, action, reason))
        if action is not Action.STOP:
            pod = present["podUID"] if action is Action.LONGER else turns.following
            (place,) = (one for one in request["status"]["sessions"] if one["podUID"] == pod)
            over.append(round_of(place, len(rounds) + 1, period_ms, rounds))
        return over

    async def _judge(self, request: Object, turns: Turns, recordings: Sequence[str]) -> tuple[Action, int, str]:
        """What coverage says comes next, for how many milliseconds, and why."""
        asked = coverage_pb2.JudgeRoundRequest(
            sessions=recordings,
            rounds=coverage_pb2.AdaptiveRounds(
                limit=request["spec"]["rounds"],
                min_gain=self._min_gain,
                min_gain_per_core_second=self._min_gain_per_core_second,
            ),
            done=len(turns.had),
            unused=turns.unused,
            longest_ms=request["status"]["plan"].get("longestPeriodMilliseconds", _NEVER_LONGER_MS),
        )
        try:
            answer = await self._operations.judge(asked)
        except PermilleError as error:
            if is_transient(error) or error.retry_after_s is not None:
                raise
            return Action.STOP, 0, f"what has been seen cannot be told: {error.message}"
        word = coverage_pb2.Round.Action.Name(answer.round.next).removeprefix("ACTION_")
        return Action(word), answer.period_ms, answer.round.reason

    async def _begun_before(self, request: Object, told: Sequence[Round]) -> list[Round]:
        """The rounds of a request that a former version accepted: each pod that has a TraceSession has had its turn, or
        has it now. That version wrote a round only when it was over, and later."""
        status, namespace = request["status"], request["metadata"]["namespace"]
        places, period_ms = status["sessions"], status["plan"]["periodMilliseconds"]
        reasons = {one["session"]: one["reason"] for one in told}
        rounds = [round_of(places[0], 1, period_ms)]
        for place in places[1:]:
            if await self._cluster.get(SESSIONS, namespace, place["name"]) is None:
                break
            rounds[-1] = judged(rounds[-1], Action.REPLICA, reasons.get(rounds[-1]["session"], "another pod"))
            rounds.append(round_of(place, len(rounds) + 1, period_ms))
        return rounds
