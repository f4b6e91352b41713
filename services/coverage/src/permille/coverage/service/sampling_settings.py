"""How much of a deployment a profile looks at: settings of whoever chooses instances."""

from __future__ import annotations

from permille.coverage.domain.spatial_sampler import Sampling
from pydantic import BaseModel, Field

_SAMPLING = Sampling()


class SamplingSettings(BaseModel):
    """A part of a table of the configuration."""

    sample_priority: int = Field(
        default=_SAMPLING.priority_threshold,
        ge=0,
        le=100,
        description="Below this priority a profile looks at one instance of each version.",
    )
    sample_exponent: float = Field(
        default=_SAMPLING.exponent,
        ge=0,
        le=1,
        description="Of N instances a profile looks at N to this power, all of them at the highest priority.",
    )
    heavy_bytes_per_second: float = Field(
        default=_SAMPLING.heavy_bytes_per_second,
        gt=0,
        description="A session that writes so much is heavy: a node has one at a time.",
    )

    def sampling(self) -> Sampling:
        """As the domain takes it."""
        return Sampling(self.sample_priority, self.sample_exponent, self.heavy_bytes_per_second)
