"""Rounds over pods: whose turn it was and whose is next, as a TraceRequest's status has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from permille.coverage.domain.rounds import Action

Place = Mapping[str, Any]
Round = dict[str, Any]


@dataclass(frozen=True)
class Turns:
    """`pods`: UIDs in the order of choosing; `had`: whose turn it was, and whether something was recorded."""

    pods: Sequence[str]
    had: Sequence[tuple[str, bool]] = ()

    @property
    def unused(self) -> bool:
        """Whether there are pods without a turn."""
        return not {pod for pod, _ in self.had}.issuperset(self.pods)

    @property
    def following(self) -> str | None:
        """The first pod without a turn; when all had theirs, the one whose turn was longest ago.

        Not one of which nothing was recorded the last time; None when no other is left.
        """
        last = {pod: (number, recorded) for number, (pod, recorded) in enumerate(self.had)}
        left = [pod for pod in self.pods if last.get(pod, (-1, True))[1]]
        return min(left, key=lambda pod: last.get(pod, (-1, True))[0], default=None)


def round_of(place: Place, number: int, period_ms: int, before: Iterable[Round] = ()) -> Round:
    """A round as it is written down before it begins; a TraceSession is its pod's first one, or has the number too."""
    first = all(one["podUID"] != place["podUID"] for one in before)
    return {
        "number": number,
        "session": place["name"] if first else f"{place['name']}-{number}",
        "podName": place["podName"],
        "podUID": place["podUID"],
        "periodMilliseconds": period_ms,
    }


def judged(present: Round, action: Action, reason: str) -> Round:
    """The round with what comes next, and why."""
    return {**present, "next": str(action).capitalize(), "reason": reason}


def is_last(present: Round) -> bool:
    """Whether no other one follows."""
    return present.get("next") == str(Action.STOP).capitalize()


def place_of(present: Round, places: Iterable[Place]) -> Place:
    """What is recorded in this round: `turn` tells it from what else is recorded of the pod for the request."""
    (place,) = (one for one in places if one["podUID"] == present["podUID"])
    again = present["session"] != place["name"]
    return {
        **place,
        "name": present["session"],
        "periodMilliseconds": present["periodMilliseconds"],
        "turn": f"{place['podUID']}.round-{present['number']}" if again else place["podUID"],
    }
