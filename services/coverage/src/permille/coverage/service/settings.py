"""The table `[coverage]` of the configuration."""

from __future__ import annotations

import json
from typing import Annotated, Any

from permille.coverage.domain.period import LONGEST_MS, SHORTEST_MS
from permille.coverage.domain.plan import Policy
from permille.coverage.domain.quota import CLUSTER, CallerLimits, Quota
from permille.coverage.domain.rounds import Worth
from permille.coverage.domain.temporal_decider import HIGHEST_WEIGHT, Weights
from permille.coverage.service.sampling_settings import SamplingSettings
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_WEIGHTS, _WORTH, _CALLER = Weights(), Worth(), CallerLimits()


def _parsed(value: Any) -> Any:
    """A flag is text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError('write it as JSON: {"name": value}') from None


class QuotaSettings(BaseModel):
    """What the unfinished requests of a namespace may take together; 0: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cores: int = Field(default=0, ge=0)
    bytes_per_second: float = Field(default=0, ge=0)
    decode_ms: int = Field(default=0, ge=0)


class CallerSettings(BaseModel):
    """What one caller may do; 0: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls_per_minute: int = Field(default=_CALLER.calls_per_minute, ge=0)
    requests: int = Field(default=_CALLER.requests, ge=0)
    cores: int = Field(default=_CALLER.cores, ge=0)
    namespaces: tuple[str, ...] | None = Field(default=None, description='Those it may ask for; "*": all.')


class CoverageSettings(SamplingSettings):
    """What the coverage service allows and prefers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    longest_period_ms: int = Field(
        default=LONGEST_MS, ge=SHORTEST_MS, le=LONGEST_MS, description="The longest recording that may be asked for."
    )
    patience_s: float = Field(
        default=120.0,
        gt=0,
        le=3600,
        description="How long an operation waits for a service that is away, or for who has its node or process.",
    )
    history_sessions: int = Field(
        default=20, ge=2, le=100, description="So many of a program's newest sessions say what has been seen of it."
    )
    weight_priority: float = Field(
        default=_WEIGHTS.priority, ge=0, le=HIGHEST_WEIGHT, description="Of the priority, in a period."
    )
    weight_complexity: float = Field(
        default=_WEIGHTS.complexity, ge=0, le=HIGHEST_WEIGHT, description="Of the basic blocks seen so far."
    )
    weight_stability: float = Field(
        default=_WEIGHTS.stability, ge=0, le=HIGHEST_WEIGHT, description="Of recent anomalies."
    )
    full_blocks: int = Field(
        default=_WEIGHTS.full_blocks,
        ge=1,
        description="A program of which so many basic blocks ran counts as fully complex.",
    )
    full_issues: float = Field(
        default=_WEIGHTS.full_issues, gt=0, description="So many recent anomalies count fully; each fades in weeks."
    )
    reference_bytes_per_second: float = Field(
        default=_WEIGHTS.reference_bytes_per_second,
        gt=0,
        description="What a process may write without its periods being decided shorter.",
    )
    min_gain: float = Field(
        default=_WORTH.functions_per_mib,
        ge=0,
        allow_inf_nan=False,
        description="Another round must be expected to bring so many new functions for each MiB of trace.",
    )
    min_gain_per_core_second: float = Field(
        default=_WORTH.functions_per_core_second,
        ge=0,
        allow_inf_nan=False,
        description="And so many for each second of a core.",
    )
    slowdowns: Annotated[dict[str, Annotated[float, Field(ge=0)]], BeforeValidator(_parsed)] = Field(
        default={},
        description="By back end, as JSON: by which share of its time work takes longer for each MB/s of trace, as"
        ' measured on such machines: {"kmod": 0.001} is a thousandth. Without, plans call the slowdown unknown.',
    )
    zones: Annotated[dict[str, str], BeforeValidator(_parsed)] = Field(
        default={}, description='Zones of nodes, before what their controllers say, as JSON: {"n1": "zone-a"}.'
    )
    quotas: Annotated[dict[str, QuotaSettings], BeforeValidator(_parsed)] = Field(
        default={},
        description='By namespace, as JSON: {"default": {"cores": 64, "bytes_per_second": 1e9, "decode_ms": 600000}}.',
    )

    cluster_cores: int = Field(
        default=CLUSTER.cores, ge=0, description="Cores traced at once over all namespaces; 0: no limit."
    )
    cluster_bytes_per_second: float = Field(
        default=CLUSTER.bytes_per_second, ge=0, description="Trace written over all namespaces; 0: no limit."
    )
    cluster_decode_ms: int = Field(
        default=CLUSTER.decode_ms, ge=0, description="Decoding to be done over all namespaces; 0: no limit."
    )
    callers: Annotated[dict[str, CallerSettings], BeforeValidator(_parsed)] = Field(
        default={},
        description="By the name in the certificate (without TLS: the address), as JSON: "
        '{"default": {"calls_per_minute": 600, "requests": 200, "cores": 0, "namespaces": ["shop"]}}.',
    )

    def policy(self) -> Policy:
        """As the domain takes it."""
        return Policy(
            self.longest_period_ms,
            Weights(
                self.weight_priority,
                self.weight_complexity,
                self.weight_stability,
                full_blocks=self.full_blocks,
                full_issues=self.full_issues,
                reference_bytes_per_second=self.reference_bytes_per_second,
            ),
            self.sampling(),
            {name: Quota(**quota.model_dump()) for name, quota in self.quotas.items()},
            {name: CallerLimits(**limits.model_dump()) for name, limits in self.callers.items()},
            Quota(self.cluster_cores, self.cluster_bytes_per_second, self.cluster_decode_ms),
        )

    def worth(self) -> Worth:
        """What another round must bring."""
        return Worth(self.min_gain, self.min_gain_per_core_second)
