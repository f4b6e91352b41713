"""Status conditions, as Kubernetes' API conventions want them (sig-architecture, api-conventions.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

ACCEPTED, COMPLETE, FAILED = "Accepted", "Complete", "Failed"
_LONGEST_MESSAGE = 32_768
Condition = dict[str, Any]


def with_condition(
    conditions: Sequence[Mapping[str, Any]],
    kind: str,
    status: bool,
    reason: str,
    message: str,
    *,
    now: datetime,
    generation: int = 1,
) -> list[Condition]:
    """The conditions with this one set; its lastTransitionTime moves only when its status does."""
    before = next((one for one in conditions if one["type"] == kind), None)
    word = str(status)
    same = before is not None and before["status"] == word
    fresh: Condition = {
        "type": kind,
        "status": word,
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if same and before else timestamp(now),
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
    }
    others = [dict(one) for one in conditions if one["type"] != kind]
    return sorted([*others, fresh], key=lambda one: str(one["type"]))


def with_conditions(
    conditions: Sequence[Mapping[str, Any]], told: tuple[str, bool, str, str], *, now: datetime, generation: int = 1
) -> list[Condition]:
    """With this one; of what has failed Complete says so too, which most people look at."""
    kind, status, reason, message = told
    if kind == FAILED and status:
        conditions = with_condition(conditions, COMPLETE, False, reason, message, now=now, generation=generation)
    return with_condition(conditions, kind, status, reason, message, now=now, generation=generation)


def is_true(status: Mapping[str, Any] | None, kind: str) -> bool:
    """Whether a condition of this status is true."""
    conditions = (status or {}).get("conditions") or []
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def is_finished(status: Mapping[str, Any] | None) -> bool:
    """Whether nothing happens any more."""
    return is_true(status, COMPLETE) or is_true(status, FAILED)


def camel_case(reason: str) -> str:
    """A reason as permille calls it, `NO_SUCH_PROCESS`, as conditions do: `NoSuchProcess`."""
    return "".join(word.capitalize() for word in reason.split("_")) or "Unknown"


def timestamp(at: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_timestamp(text: str) -> datetime:
    """The moment that `timestamp` or the API server wrote."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
