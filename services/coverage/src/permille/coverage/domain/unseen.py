"""How much of what a program can do has not been seen yet, from how often the rest was.

Sessions are sampling units; what counts of a function, or of a call of one by another, is in how many of them it ran,
not how often: calls come in bursts, so that counts within one session say little of another. The estimators are those
of ecology's capture-recapture for incidence data:

- the number never seen, a lower bound: Chao2 (Chao 1987, Biometrics 43:783-791), in its bias-corrected form where
  nothing was seen exactly twice (Colwell et al. 2012);
- sample coverage, the share of all incidences that what was seen makes: Turing's idea (Good 1953, Biometrika 40), for
  incidences with the correction of Chao and Jost (2012, Ecology 93:2533-2547);
- what further units bring: the extrapolation of Colwell et al. (2012, Journal of Plant Ecology 5:3-21).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Incidence:
    """`frequencies`: how many items occurred in exactly so many of the `units`. One unit alone says nothing unseen."""

    units: int
    frequencies: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, units: Iterable[Iterable[Hashable]]) -> Incidence:
        """Counts items over units; an item counts once in each."""
        occurrences: Counter[Hashable] = Counter()
        number = 0
        for unit in units:
            number += 1
            occurrences.update(set(unit))
        return cls(number, Counter(occurrences.values()))

    @property
    def observed(self) -> int:
        """Items seen at all."""
        return sum(self.frequencies.values())

    @property
    def incidences(self) -> int:
        """Occurrences over all units."""
        return sum(times * items for times, items in self.frequencies.items())

    @property
    def once(self) -> int:
        """Items of one unit."""
        return self.frequencies.get(1, 0)

    @property
    def twice(self) -> int:
        """Items of two units."""
        return self.frequencies.get(2, 0)


def unseen(seen: Incidence) -> float:
    """Items that exist and were in no unit: at least so many (Chao2). 0 for one unit, which cannot tell.

    Of two units what was in both is all that is common, which says nothing of what is rare: then the first-order
    jackknife (Burnham and Overton 1978).
    """
    if seen.units < 2:
        return 0.0
    if seen.units == 2:
        return seen.once / 2
    shrink = (seen.units - 1) / seen.units
    if seen.twice:
        return shrink * seen.once**2 / (2 * seen.twice)
    return shrink * seen.once * (seen.once - 1) / 2


def sample_coverage(seen: Incidence) -> float:
    """The share, 0 to 1, of what runs in a further unit that has been seen before; 0 when nothing was."""
    if not seen.incidences:
        return 0.0
    if not seen.once:
        return 1.0
    chance = (seen.units - 1) * seen.once
    # One unit, or two, cannot tell rare from common: then Turing's own estimate.
    correction = chance / (chance + 2 * seen.twice) if seen.units > 2 else 1.0
    return max(0.0, 1 - seen.once / seen.incidences * correction)


def expected_new(seen: Incidence, more_units: float) -> float:
    """Items that `more_units` further units are expected to bring; never more than `unseen`."""
    missing = unseen(seen)
    if missing <= 0:
        return 0.0
    stays = 1 - seen.once / (seen.units * missing + seen.once)
    return float(missing * (1 - stays**more_units))
