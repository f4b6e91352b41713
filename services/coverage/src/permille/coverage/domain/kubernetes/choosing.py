"""Which pods of those that a TraceRequest means are recorded, and why or why not each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from permille.coverage.domain.kubernetes.instances import Container
from permille.coverage.domain.kubernetes.wish import Wish
from permille.coverage.domain.period import Purpose
from permille.coverage.domain.spatial_sampler import Choice, Instance, Sampling, choose, spread
from permille.coverage.domain.temporal_decider import priority_for


def choices(found: Sequence[Instance], wish: Wish, sampling: Sampling) -> list[Choice]:
    """All instances in the order of choosing: every one for an anomaly, a sample of them for a profile.

    With rounds each may have its turn, one after the other. Never more than the wish and its quota allow; any beginning
    is spread over versions, zones and nodes.
    """
    in_order = list(spread(found))
    if wish.purpose is Purpose.PROFILING and wish.rounds:
        made = [Choice(one, not one.process.session, _turn(one)) for one in in_order]
    elif wish.purpose is Purpose.PROFILING:
        priority = priority_for(wish.purpose, wish.priority)
        made = list(choose(in_order, wish.purpose, priority, sampling=sampling).choices)
    else:
        # Each has a session of its own, however many are on a node: what is busy is waited for.
        made = [Choice(one, True, "the target means it") for one in in_order]
    return list(_at_most(made, wish))


def not_chosen(made: Sequence[Choice]) -> dict[str, list[str]]:
    """Names of the pods that are not recorded, by the reason."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for choice in made:
        if not choice.chosen and isinstance(choice.instance.process, Container):
            reasons[choice.reason].append(choice.instance.process.pod)
    return dict(reasons)


def _turn(one: Instance) -> str:
    session = one.process.session
    return f"being recorded by {session}" if session else "in its turn: spread over versions, zones and nodes"


def _at_most(made: Sequence[Choice], wish: Wish) -> Iterator[Choice]:
    left, why = wish.most
    for choice in made:
        if choice.chosen and not left:
            yield replace(choice, chosen=False, reason=why)
            continue
        left -= choice.chosen
        yield choice
