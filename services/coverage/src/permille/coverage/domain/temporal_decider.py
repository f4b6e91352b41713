"""How long to look at one target: a weighted sum of why, how complex and how troubled, against what looking costs it.

The four inputs are those of the published temporal decider; the weights are configuration. Why these defaults:
docs/design/0009-coverage.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from permille.coverage.domain.period import Purpose
from permille.mesh.errors import InvalidArgument

SHORTEST_DECIDED_MS = 100
LONGEST_DECIDED_MS = 2000
HIGHEST_PRIORITY = 100
# Only ratios count, and sums and products of weights must be numbers.
HIGHEST_WEIGHT = 1e6
# Where the request has no priority of its own.
PRIORITY_OF = {Purpose.ANOMALY: 90, Purpose.ON_DEMAND: 50, Purpose.PROFILING: 30}
# Of a program that nobody knows anything about: neither small nor large.
UNKNOWN_COMPLEXITY = 0.5


@dataclass(frozen=True)
class Weights:
    """The sum's weights, and at which value each input counts fully."""

    priority: float = 0.5
    complexity: float = 0.3
    stability: float = 0.2
    # A program of which so many basic blocks ran counts as fully complex: all that Debian's redis and perl have.
    full_blocks: int = 100_000
    # Bytes of binary for each block that may run, where none has been seen: of Debian's programs 22 to 40.
    bytes_per_block: int = 30
    # So many recent troubles count fully.
    full_issues: float = 5.0
    # What one traced process may write without its period getting shorter.
    reference_bytes_per_second: float = 50e6

    def by(self, shares: Mapping[str, float]) -> Weights:
        """With these of the three weights in place of its own."""
        return replace(
            self,
            priority=shares.get("priority", self.priority),
            complexity=shares.get("complexity", self.complexity),
            stability=shares.get("stability", self.stability),
        )


@dataclass(frozen=True)
class Situation:
    """What is known of the target. `blocks` None: nobody has seen it run; `binary_bytes` None: unknown."""

    priority: int
    blocks: float | None = None
    binary_bytes: int | None = None
    issues: float = 0.0
    bytes_per_second: float = 0.0


@dataclass(frozen=True)
class Term:
    """Part of an explanation: the input as a share of its full value, its weight, what it makes (of periods: ms)."""

    name: str
    value: float
    weight: float
    contribution: float
    detail: str = ""


@dataclass(frozen=True)
class Decision:
    """The period, and the terms whose contributions add up to it before it is cut to what is allowed."""

    period_ms: int
    terms: tuple[Term, ...] = ()


def priority_for(purpose: Purpose, asked: int | None) -> int:
    """0 to 100: the one asked for, or the purpose's own for None. Raises `InvalidArgument` outside."""
    if asked is None:
        return PRIORITY_OF[purpose]
    if not 0 <= asked <= HIGHEST_PRIORITY:
        raise InvalidArgument(
            f"priority {asked} is outside 0 to {HIGHEST_PRIORITY}",
            reason="PRIORITY_OUT_OF_RANGE",
            help=f"choose 0 to {HIGHEST_PRIORITY}, or none for the purpose's own ({PRIORITY_OF[purpose]})",
            metadata={"priority": str(asked)},
        )
    return asked


def decide(situation: Situation, weights: Weights, *, longest_ms: int = LONGEST_DECIDED_MS) -> Decision:
    """100 to 2000 ms, and never more than `longest_ms`.

    Longer with priority, complexity and past troubles, shorter the more the target writes above the reference; monotone
    in each.
    """
    parts = (
        ("priority", situation.priority / HIGHEST_PRIORITY, weights.priority, f"{situation.priority} of 100"),
        ("complexity", *_complexity(situation, weights)),
        ("stability", *_stability(situation, weights)),
    )
    span = LONGEST_DECIDED_MS - SHORTEST_DECIDED_MS
    whole = sum(weight for _, _, weight, _ in parts) or 1.0
    terms = [Term("base", 1.0, 1.0, SHORTEST_DECIDED_MS, "the shortest period")]
    terms += [Term(name, value, weight, span * weight * value / whole, said) for name, value, weight, said in parts]
    wanted = sum(term.contribution for term in terms[1:])
    cost = situation.bytes_per_second / weights.reference_bytes_per_second
    saved = wanted * (1 - 1 / max(cost, 1.0))
    terms.append(Term("overhead", cost, 1.0, -saved, f"{situation.bytes_per_second / 1e6:.1f} MB/s written"))
    period_ms = round(sum(term.contribution for term in terms))
    return Decision(max(1, min(period_ms, LONGEST_DECIDED_MS, longest_ms)), tuple(terms))


def complexity(situation: Situation, weights: Weights) -> float:
    """0 to 1."""
    return _complexity(situation, weights)[0]


def _complexity(situation: Situation, weights: Weights) -> tuple[float, float, str]:
    if situation.blocks is not None:
        blocks, said = situation.blocks, f"{situation.blocks:.0f} blocks seen"
    elif situation.binary_bytes is not None:
        blocks = situation.binary_bytes / weights.bytes_per_block
        said = f"a binary of {situation.binary_bytes} bytes, never seen running"
    else:
        return UNKNOWN_COMPLEXITY, weights.complexity, "never seen running"
    # By orders of magnitude: from a hundred blocks to a thousand is as far as from ten thousand to a hundred thousand.
    value = min(1.0, math.log1p(blocks) / math.log1p(weights.full_blocks))
    return value, weights.complexity, said


def _stability(situation: Situation, weights: Weights) -> tuple[float, float, str]:
    return (
        min(1.0, situation.issues / weights.full_issues),
        weights.stability,
        f"{situation.issues:.1f} recent troubles",
    )
