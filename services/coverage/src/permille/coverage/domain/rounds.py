"""Whether another replica, or a longer look at the same, is worth what it costs; and when enough has been seen.

Two sources of evidence. Sessions as units tell what another replica brings. Windows of the newest session as units tell
what more time in it would bring; of that only what no other session has seen counts, which is taken to be the estimated
unseen functions' part of all that the newest session has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from permille.coverage.domain.temporal_decider import LONGEST_DECIDED_MS
from permille.coverage.domain.unseen import Incidence, expected_new, unseen

_MIB = 1 << 20
MOST_ROUNDS = 64


class Action(StrEnum):
    """What comes after a round."""

    REPLICA = "REPLICA"
    LONGER = "LONGER"
    STOP = "STOP"


def longest_round_ms(longest_ms: int) -> int:
    """To which the period is doubled at most, where a recording may have so long."""
    return min(longest_ms, LONGEST_DECIDED_MS)


@dataclass(frozen=True)
class Worth:
    """Another round must be expected to bring so many new functions, for each MiB of trace and each core-second."""

    functions_per_mib: float = 1.0
    functions_per_core_second: float = 0.5


@dataclass(frozen=True)
class Evidence:
    """What is known after a round; costs are those of one more session of the same length.

    `sessions`: functions by the number of sessions; `windows`: those of the newest session by the number of windows.
    """

    sessions: Incidence
    windows: Incidence
    session_bytes: int
    core_seconds: float
    period_ms: int


@dataclass(frozen=True)
class Option:
    """One way to go on, with what it is expected to bring and to cost."""

    action: Action
    period_ms: int
    new_functions: float
    size_bytes: int
    core_seconds: float

    @property
    def per_mib(self) -> float:
        """Expected new functions for each MiB of trace."""
        return self.new_functions * _MIB / max(self.size_bytes, 1)

    @property
    def per_core_second(self) -> float:
        """Expected new functions for each second of a traced or decoding core."""
        return self.new_functions / max(self.core_seconds, 1e-6)

    def pays(self, worth: Worth) -> bool:
        """Whether both thresholds are reached."""
        return self.per_mib >= worth.functions_per_mib and self.per_core_second >= worth.functions_per_core_second


@dataclass(frozen=True)
class Verdict:
    """What to do next, why, and the best that there was to do."""

    action: Action
    reason: str
    best: Option | None = None


def options(known: Evidence, *, longest_ms: int) -> list[Option]:
    """Another replica, or an earlier one at another time, for as long; or twice as long in the one that was last."""
    windows_missing = unseen(known.windows)
    missing = unseen(known.sessions) if known.sessions.units > 1 else windows_missing
    not_in_newest = missing + known.sessions.observed - known.windows.observed
    new_to_all = missing / not_in_newest if not_in_newest > 0 else 0.0
    gain = (
        expected_new(known.sessions, 1)
        if known.sessions.units > 1
        else expected_new(known.windows, known.windows.units)
    )
    found = [Option(Action.REPLICA, known.period_ms, gain, known.session_bytes, known.core_seconds)]
    longer_ms = min(2 * known.period_ms, longest_ms)
    times = longer_ms / max(known.period_ms, 1)
    if times > 1:
        gain = expected_new(known.windows, times * known.windows.units) * min(1.0, new_to_all)
        cost = round(times * known.session_bytes), times * known.core_seconds
        found.append(Option(Action.LONGER, longer_ms, gain, *cost))
    return found


def next_round(known: Evidence, worth: Worth, *, done: int, limit: int, unused: bool, longest_ms: int) -> Verdict:
    """After `done` of at most `limit` rounds: the option with the most new functions for its bytes, or the end.

    `unused`: whether there are replicas that had no turn yet.
    """
    if done >= limit:
        return Verdict(Action.STOP, f"{done} rounds are as many as were asked for")
    if not known.sessions.observed:
        return Verdict(Action.STOP, "nothing was decoded")
    # Among equals the replica: it also sees other requests.
    best = max(
        options(known, longest_ms=longest_ms), key=lambda option: (option.per_mib, option.action is Action.REPLICA)
    )
    what = f"{best.period_ms} ms" if best.action is Action.LONGER else "another replica" if unused else "another time"
    told = (
        f"{what}: {best.new_functions:.1f} new functions expected, {best.per_mib:.2f} for each MiB"
        f" and {best.per_core_second:.2f} for each core-second"
    )
    if not best.pays(worth):
        wanted = f"{worth.functions_per_mib:g} and {worth.functions_per_core_second:g} are wanted"
        return Verdict(Action.STOP, f"{told}: {wanted}", best)
    return Verdict(best.action, told, best)


def passed_over(why: str, *, done: int, limit: int, others: bool) -> Verdict:
    """After `done` of at most `limit` rounds, when nothing was recorded in the last one.

    `others`: whether there are replicas that may have their turn instead.
    """
    return Verdict(Action.REPLICA if others and done < limit else Action.STOP, f"not recorded: {why}")
