"""A TraceRequest's numbers: what it asks for, what its namespace's TracePolicy adds and allows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from permille.coverage.domain.period import Purpose
from permille.mesh.errors import FailedPrecondition, InvalidArgument

_PERIOD = re.compile(r"([0-9]{1,6})(ms|s)")
_SIZE = re.compile(r"([1-9][0-9]{0,9})(Ki|Mi|Gi)?")
_UNITS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_DAY_S = 86_400
PURPOSES = {"OnDemand": Purpose.ON_DEMAND, "Anomaly": Purpose.ANOMALY, "Profiling": Purpose.PROFILING}


@dataclass(frozen=True)
class Policy:
    """A TracePolicy; the defaults are those of a namespace without one."""

    period_ms: int = 0
    budget_bytes: int = 0
    replicas: int = 1
    active_requests: int = 4
    most_replicas: int = 10
    longest_ms: int = 60_000
    most_budget_bytes: int = 0
    ttl_s: int = _DAY_S
    # Of recordings; 0: the decoder's setting.
    retention_s: int = 0
    # Of a decided period; none: coverage's own.
    weights: Mapping[str, int] = field(default_factory=dict)
    # Of all requests together, as coverage's API calls them; none: coverage's own.
    quota: Mapping[str, int] = field(default_factory=dict)

    @property
    def usual_budget_bytes(self) -> int:
        """Of who asks for none: the default, at most the quota; 0: the node's own."""
        said = [size for size in (self.budget_bytes, self.most_budget_bytes) if size]
        return min(said, default=0)


@dataclass(frozen=True)
class Wish:
    """What one TraceRequest gets: zeros, and None for the priority, are left to coverage's purpose and to the node.

    `replicas` 0: as many as the purpose wants, within `allowed`. `rounds` 0: all of them at once.
    """

    period_ms: int
    budget_bytes: int
    replicas: int
    ttl_s: int
    weights: Mapping[str, int] = field(default_factory=dict)
    purpose: Purpose = Purpose.ON_DEMAND
    priority: int | None = None
    rounds: int = 0
    allowed: int = 10
    quota: Mapping[str, int] = field(default_factory=dict)
    retention_s: int = 0
    # Of a period that is decided, and to which rounds may double one.
    longest_ms: int = 60_000

    @property
    def most(self) -> tuple[int, str]:
        """How many pods are recorded at most, and what says so."""
        limits = [(self.allowed, f"quotas.maxReplicas of the TracePolicy is {self.allowed}")]
        limits += [(self.replicas, f"maxReplicas is {self.replicas}")] if self.replicas else []
        limits += [(self.rounds, f"the request has {self.rounds} rounds")] if self.rounds else []
        return min(limits)


def policy_of(spec: Mapping[str, Any] | None) -> Policy:
    """The policy in a TracePolicy's spec; None: there is none."""
    if spec is None:
        return Policy()
    defaults, quotas, retention = (spec.get(part) or {} for part in ("defaults", "quotas", "retention"))
    known = Policy()
    return Policy(
        period_ms=milliseconds(defaults.get("period")),
        budget_bytes=size_bytes(defaults.get("budget")),
        replicas=defaults.get("maxReplicas", known.replicas),
        active_requests=quotas.get("activeRequests", known.active_requests),
        most_replicas=quotas.get("maxReplicas", known.most_replicas),
        longest_ms=milliseconds(quotas.get("maxPeriod")) or known.longest_ms,
        most_budget_bytes=size_bytes(quotas.get("maxBudget")),
        ttl_s=retention.get("ttlSecondsAfterFinished", known.ttl_s),
        retention_s=retention.get("ttlSecondsAfterRecorded", known.retention_s),
        weights=spec.get("weights") or {},
        quota=_quota(quotas),
    )


def wish_of(spec: Mapping[str, Any], policy: Policy) -> Wish:
    """What a TraceRequest's spec gets under a policy.

    Raises `FailedPrecondition` (QUOTA_PERIOD, QUOTA_BUDGET, QUOTA_REPLICAS) when it asks for more than is allowed.
    """
    purpose = PURPOSES[spec.get("purpose", "OnDemand")]
    wish = Wish(
        # Who says no number gets as much as is allowed.
        period_ms=milliseconds(spec.get("period")) or min(policy.period_ms, policy.longest_ms),
        budget_bytes=size_bytes(spec.get("budget")) or policy.usual_budget_bytes,
        # An anomaly concerns every pod, and of a profile the sample decides.
        replicas=spec.get("maxReplicas")
        or (min(policy.replicas, policy.most_replicas) if purpose is Purpose.ON_DEMAND else 0),
        ttl_s=spec.get("ttlSecondsAfterFinished", policy.ttl_s),
        retention_s=policy.retention_s,
        weights=policy.weights,
        purpose=purpose,
        priority=spec.get("priority"),
        rounds=spec.get("rounds", 0),
        allowed=policy.most_replicas,
        quota=policy.quota,
        longest_ms=policy.longest_ms,
    )
    if wish.period_ms > policy.longest_ms:
        raise _over("QUOTA_PERIOD", f"a period of {wish.period_ms} ms", f"{policy.longest_ms} ms", "quotas.maxPeriod")
    if policy.most_budget_bytes and wish.budget_bytes > policy.most_budget_bytes:
        allowed = f"{policy.most_budget_bytes} bytes"
        raise _over("QUOTA_BUDGET", f"a budget of {wish.budget_bytes} bytes", allowed, "quotas.maxBudget")
    if wish.replicas > policy.most_replicas:
        allowed = f"{policy.most_replicas}"
        raise _over("QUOTA_REPLICAS", f"maxReplicas {wish.replicas}", allowed, "quotas.maxReplicas")
    return wish


def _quota(quotas: Mapping[str, Any]) -> dict[str, int]:
    asked = {
        "cores": quotas.get("cores", 0),
        "bytes_per_second": size_bytes(quotas.get("bytesPerSecond")),
        "decode_ms": quotas.get("decodeMilliseconds", 0),
    }
    return {name: value for name, value in asked.items() if value}


def milliseconds(text: str | None) -> int:
    """The period in `500ms` or `2s`; 0 for none. Raises `InvalidArgument`."""
    if not text:
        return 0
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{text!r} is not a period", reason="PERIOD_SYNTAX", help="write 500ms or 2s")
    return int(match[1]) * (1000 if match[2] == "s" else 1)


def size_bytes(text: str | None) -> int:
    """The bytes in `64Mi`; 0 for none. Raises `InvalidArgument`."""
    if not text:
        return 0
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{text!r} is not a size", reason="SIZE_SYNTAX", help="write 64Mi, or a number of bytes")
    return int(match[1]) * _UNITS[match[2]]


def _over(reason: str, asked: str, allowed: str, key: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{asked} is more than this namespace allows ({allowed})",
        reason=reason,
        help=f"ask for less, or have {key} of the namespace's TracePolicy raised",
    )
